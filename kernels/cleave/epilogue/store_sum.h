// An element of D from its sum, by itself: nothing that its row or column brings.
#pragma once

#include "cleave/config/gemm_params.h"
#include "cleave/epilogue/epilogue.h"

namespace cleave {

template <GemmConfig C>
CLEAVE_DEVICE void store_sum(const EpilogueParams& p, uint32_t row, uint32_t col, float sum) {
  static_assert(!C.epilogue.function.given);
  const float value = epilogue_value(C.epilogue, p, sum, BroadcastValues(), BroadcastValues(), false,
                                     c_element(C.epilogue, p, {row, col, 0}));
  store_element(C.epilogue.d, p.d, row * p.d_stride + col, value);
}

}  // namespace cleave

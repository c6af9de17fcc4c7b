// The epilogue of four accumulators of one block (see fragment.h): bounds, C, bias, activation.
#pragma once

#include "cleave/epilogue/epilogue.h"
#include "cleave/epilogue/fragment.h"

namespace cleave {

template <GemmConfig C>
CLEAVE_HD constexpr EpilogueKind epilogue_kind() {
  return {C.c, C.d, C.bias_dtype, C.d_order, C.activation, C.bias, C.has_c};
}

/// Turns the sums `v` of rows row, row + 8 and columns col, col + 1 into values of D. Elements
/// outside D keep any value.
template <GemmConfig C>
CLEAVE_DEVICE void finish_block(const EpilogueParams& p, float (&v)[4], uint32_t row, uint32_t col,
                                uint32_t batch) {
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t r = row + i / 2 * 8, c = col + i % 2;
    constexpr bool kReads = C.has_c || C.bias != Bias::none;
    if (!kReads || (r < p.m && c < p.n))
      v[i] = epilogue_value(epilogue_kind<C>(), p, v[i], r, c, batch);
  }
}

}  // namespace cleave

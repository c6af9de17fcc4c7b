// Convolutions that break no rule, for tests to change.
#pragma once

#include "all_kernels/typical_problems.h"
#include "cleave/conv.h"

namespace cleave {

/// Two images of 9 x 8 pixels, 5 x 4 outputs; 3 x 2 taps; 6 channels, 10 filters.
inline ConvLayout good_layout(Conv kind) {
  return {.kind = kind,
          .images = 2,
          .channels = 6,
          .filters = 10,
          .axes = {{},
                   {.size = 9, .filter = 3, .stride = 2, .pad_begin = 1, .pad_end = 1},
                   {.size = 8, .filter = 2, .stride = 2, .pad_begin = 0, .pad_end = 1}}};
}

inline GemmProblem good_conv(Conv kind, int64_t groups = 1) {
  return implicit_gemm(good_layout(kind), groups, DType::bf16, DType::bf16);
}

using typical::kConvs;

}  // namespace cleave

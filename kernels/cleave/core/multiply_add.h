#pragma once

#include "cleave/core/macros.h"

#if !defined(__CUDACC_RTC__)
#include <cmath>
#endif

namespace cleave {

/// a * b + c, rounded once, by every compiler.
CLEAVE_HD float multiply_add(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

}  // namespace cleave

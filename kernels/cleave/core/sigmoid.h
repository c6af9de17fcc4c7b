// The logistic function, and what is made of it, in float32.
#pragma once

#include "cleave/core/macros.h"

#if !defined(__CUDACC_RTC__)
#include <cmath>
#endif

namespace cleave {

/// value / (1 + exp(-x)). From Hopper on a GPU approximates both: relative to the exact one within 2^-21, and by
/// |x| * 2^-24 more where x is negative. What IEEE's division and exp do about subnormal numbers takes as many
/// instructions again, and a branch, beside which no other element's can be under way. Before Hopper kernels have no
/// registers for several.
CLEAVE_HD float over_one_plus_exp(float value, float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr float kLog2E = 1.4426950408889634f;
  float power, inverse;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -kLog2E));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + power));
  return value * inverse;
#else
#if !defined(__CUDACC_RTC__)
  using std::exp;
#endif
  return value / (1.0f + exp(-x));
#endif
}

CLEAVE_HD float sigmoid(float x) {
  return over_one_plus_exp(1.0f, x);
}

CLEAVE_HD float silu(float x) {
  return over_one_plus_exp(x, x);
}

}  // namespace cleave

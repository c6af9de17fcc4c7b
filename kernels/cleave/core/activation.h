// Activations, as torch defines them, in float32.
#pragma once

#include "cleave/core/enums.h"

#if !defined(__CUDACC_RTC__)
#include <cmath>
#endif

namespace cleave {

/// 1 / (1 + exp(-x)). A GPU approximates both: relative to the exact value within 2^-21, and |x| * 2^-24 more where x
/// is negative. What IEEE's division and exp do about subnormal numbers takes as many instructions again, and a branch,
/// beside which no other element's can be under way.
CLEAVE_HD float sigmoid(float x) {
#if defined(__CUDA_ARCH__)
  constexpr float kLog2E = 1.4426950408889634f;
  float power, inverse;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -kLog2E));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + power));
  return inverse;
#else
  return 1.0f / (1.0f + std::exp(-x));
#endif
}

/// `kind` is a constant in kernels, so the switch costs nothing there.
CLEAVE_HD float activate(Activation kind, float x) {
#if !defined(__CUDACC_RTC__)
  using std::erf, std::exp, std::tanh;
#endif
  switch (kind) {
    case Activation::none:
      return x;
    case Activation::relu:
      return x < 0.0f ? 0.0f : x;  // a NaN stays a NaN
    case Activation::relu2:
      return x < 0.0f ? 0.0f : x * x;
    case Activation::gelu_tanh: {
      const float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);  // sqrt(2 / pi)
      return 0.5f * x * (1.0f + tanh(inner));
    }
    case Activation::gelu_erf:
      return 0.5f * x * (1.0f + erf(x * 0.7071067811865476f));
    case Activation::silu:
      return x * sigmoid(x);
    case Activation::swiglu:  // of two values: below
      return x;
  }
  return x;
}

CLEAVE_HD float swiglu(float gate, float up) {
  return activate(Activation::silu, gate) * up;
}

}  // namespace cleave

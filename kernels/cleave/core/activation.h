// Activations, as torch defines them, in float32.
#pragma once

#include "cleave/core/enums.h"

#if !defined(__CUDACC_RTC__)
#include <cmath>
#endif

namespace cleave {

/// x / y to two units in the last place: where y is beyond 2^126, 0. IEEE's division has a branch, beside which no other
/// element's can be under way.
CLEAVE_HD float quotient(float x, float y) {
#if defined(__CUDA_ARCH__)
  return __fdividef(x, y);
#else
  return x / y;
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
      return quotient(x, 1.0f + exp(-x));
    case Activation::swiglu:  // of two values: below
      return x;
  }
  return x;
}

CLEAVE_HD float swiglu(float gate, float up) {
  return activate(Activation::silu, gate) * up;
}

}  // namespace cleave

// The operations of epilogue functions, in float32: one definition for kernels, whose source names them, and
// for the CPU backend. NaNs do as torch has them: they pass through minimum, maximum and clamps.
#pragma once

#include "cleave/core/element.h"
#include "cleave/core/sigmoid.h"

#if !defined(__CUDACC_RTC__)
#include <cmath>
#endif

namespace cleave {

/// `operation` is a constant in kernels, so the switch costs nothing there. What it does not take does not count.
CLEAVE_HD float apply(Elementwise operation, float x, float y = 0.0f, float z = 0.0f) {
#if !defined(__CUDACC_RTC__)
  using std::erf, std::exp, std::log, std::sqrt, std::tanh;
#endif
  switch (operation) {
    case Elementwise::negative:
      return -x;
    case Elementwise::absolute:
      return bits_float(float_bits(x) & 0x7fffffffu);
    case Elementwise::exp:
      return exp(x);
    case Elementwise::log:
      return log(x);
    case Elementwise::sqrt:
      return sqrt(x);
    case Elementwise::rsqrt:
#if defined(__CUDA_ARCH__)
      return rsqrt(x);
#else
      return 1.0f / sqrt(x);
#endif
    case Elementwise::tanh:
      return tanh(x);
    case Elementwise::erf:
      return erf(x);
    case Elementwise::sigmoid:
      return sigmoid(x);
    case Elementwise::silu:
      return silu(x);
    case Elementwise::relu:
      return x < 0.0f ? 0.0f : x;  // a NaN stays a NaN
    case Elementwise::logical_not:
      return x == 0.0f ? 1.0f : 0.0f;
    case Elementwise::to_float16:
      return rounded_to(DType::f16, x);
    case Elementwise::to_bfloat16:
      return rounded_to(DType::bf16, x);
    case Elementwise::to_int8:
      return rounded_to(DType::i8, x);
    case Elementwise::to_float8_e4m3fn:
      return rounded_to(DType::e4m3, x);
    case Elementwise::to_float8_e5m2:
      return rounded_to(DType::e5m2, x);
    case Elementwise::add:
      return x + y;
    case Elementwise::subtract:
      return x - y;
    case Elementwise::multiply:
      return x * y;
    case Elementwise::divide:
      return x / y;
    case Elementwise::minimum:
      return x < y || x != x ? x : y;
    case Elementwise::maximum:
      return x > y || x != x ? x : y;
    case Elementwise::less:
      return x < y ? 1.0f : 0.0f;
    case Elementwise::less_equal:
      return x <= y ? 1.0f : 0.0f;
    case Elementwise::equal:
      return x == y ? 1.0f : 0.0f;
    case Elementwise::not_equal:
      return x != y ? 1.0f : 0.0f;
    case Elementwise::logical_and:
      return x != 0.0f && y != 0.0f ? 1.0f : 0.0f;
    case Elementwise::logical_or:
      return x != 0.0f || y != 0.0f ? 1.0f : 0.0f;
    case Elementwise::where:
      return x != 0.0f ? y : z;
  }
  return x;
}

/// A function of such operations, in the source of the kernel whose configuration is C: `static void run(float acc,
/// const auto& in, float (&out)[])`; of a gated one `acc` is the gate's sum, and that of the up projection, `float up`,
/// follows it.
template <auto C>
struct FunctionBody;

}  // namespace cleave

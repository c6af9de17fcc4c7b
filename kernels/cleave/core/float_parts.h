// float32 numbers as sums of two numbers of fewer bits, which tensor cores multiply exactly:
//
//   x = high + low,  x * y = high * high + low * high + high * low  (+ low * low, which is dropped)
//
//            high, low   |x - high - low| / |x|   |low| / |x|   off by, of each product
//   bf16x3   bfloat16    2^-17                    2^-8          2^-16 + 2^-16
//   tf32x3   TF32        2^-23                    2^-11         2^-22 + 2^-22
//
// Numbers below 2^-117 (tf32x3: 2^-114) have low parts of fewer bits, down to 2^-133 (2^-136), and are off by at most half
// of that.
//
// An infinity, a NaN, and a number that rounds to an infinity (from 3.3962e38, tf32x3: 3.4020e38 on) are their high part
// alone, and multiply high parts alone: their difference from it, and an infinity times a low part of 0 or of the other
// sign, would be NaNs that the product is not.
#pragma once

#include "cleave/core/element.h"

namespace cleave {

template <Precision P>
CLEAVE_HD float nearest_part(float x) {
  static_assert(in_parts(P));
  if constexpr (P == Precision::tf32x3) return round_to_tf32(x);
  return bf16_to_float(float_to_bf16(x));
}

struct FloatParts {
  float high, low;
};

template <Precision P>
CLEAVE_HD FloatParts float_parts(float x) {
  const float high = nearest_part<P>(x);
  return {high, nearest_part<P>(x - high)};
}

/// Of a low part's bits, or the upper 16 of them: whether its high part multiplies high parts alone.
CLEAVE_HD bool stands_alone(uint32_t low_bits) {
  return (~low_bits & 0x7f800000u) == 0;
}

}  // namespace cleave

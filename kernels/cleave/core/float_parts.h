// float32 numbers as sums of two numbers of fewer bits, which tensor cores multiply exactly:
//
//   x = high + low,  x * y = high * high + low * high + high * low  (+ low * low, which is dropped)
//
//            high, low   |x - high - low| / |x|   |low| / |x|   off by, of each product
//   bf16x3   bfloat16    2^-17                    2^-8          2^-16 + 2^-16
//   tf32x3   TF32        2^-23                    2^-11         2^-22 + 2^-22
//
// Numbers below 2^-117 (tf32x3: 2^-114) have low parts of fewer bits, down to 2^-133 (2^-136), and are off by less than
// that.
//
// An infinity, and a number that rounds to one (from 3.3962e38, tf32x3: 3.4020e38 on), stand alone: they multiply high
// parts alone. Their difference from their high part, and an infinity times a low part of 0 or of the other sign, would
// be NaNs that the product is not. Both parts of a NaN are NaNs.
#pragma once

#include "cleave/core/element.h"

namespace cleave {

struct FloatParts {
  float high, low;
};

template <Precision P>
CLEAVE_HD FloatParts float_parts(float x) {
  static_assert(in_parts(P));
  if constexpr (P == Precision::bf16x3) {
    const float high = bf16_to_float(float_to_bf16(x));
    return {high, bf16_to_float(float_to_bf16(x - high))};
  } else {
    // Cutting off leaves 11 of the 12 bits that are left, in half the instructions of rounding them.
    const float high = round_to_tf32(x);
    return {high, bits_float(float_bits(x - high) & ~0x1fffu)};
  }
}

/// Whether a high part, given by its bits or the upper 16 of them, is infinite: its low part is NaN or infinite then.
CLEAVE_HD bool stands_alone(uint32_t high_bits) {
  return (high_bits & 0x7fffffffu) == 0x7f800000u;
}

}  // namespace cleave

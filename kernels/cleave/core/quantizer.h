// The arithmetic of quantisation, element by element: how far a group's values reach, the scale
// that follows, and what is stored.
//
//   q = round(x / scale) + zero,   x ~ scale * (q - zero)
//
// One definition for the kernels and the CPU backend, whose results are bitwise equal.
#pragma once

#include "cleave/core/element.h"
#include "cleave/core/math.h"
#include "cleave/core/multiply_add.h"

namespace cleave {

/// Steps between the least and the largest element of asymmetric int8.
inline constexpr float kSteps = 255.0f;
inline constexpr float kLeast = -128.0f;

/// A scale below the normal floats has no reciprocal to count on: its group counts as zeros.
inline constexpr float kSmallestScale = 1.17549435e-38f;  // 2^-126

/// How far values reach from 0 to either side, as the bits of magnitudes. Ordered as integers,
/// those are ordered as magnitudes are, with infinities and then NaNs on top: integer maxima lose
/// neither, in any order.
struct Reach {
  int32_t above = 0;  // symmetric: to both sides
  int32_t below = 0;  // of negative values; stays 0 where symmetric

  CLEAVE_HD void add(bool symmetric, float x) {
    const uint32_t bits = float_bits(x);
    if (symmetric) {
      above = max_of(above, int32_t(bits & 0x7fffffffu));
    } else {
      above = max_of(above, int32_t(bits));
      below = max_of(below, int32_t(bits ^ 0x80000000u));
    }
  }

  CLEAVE_HD void add(const Reach& other) {
    above = max_of(above, other.above);
    below = max_of(below, other.below);
  }
};

struct Quantizer {
  float scale = 0.0f;
  float inverse = 0.0f;
  int32_t zero = 0;
};

/// With a scale and a zero point that are given. A scale of 0 makes every x `zero`.
CLEAVE_HD Quantizer quantizer_with(float scale, int32_t zero) {
  const float magnitude = scale < 0.0f ? -scale : scale;
  return {scale, magnitude < kSmallestScale ? 0.0f : 1.0f / scale, zero};
}

/// A scale rounded up to a power of two, all that UE8M0 holds.
CLEAVE_HD float rounded_up_to_ue8m0(float scale) {
  constexpr uint32_t kMantissa = 0x7fffffu;
  const uint32_t bits = float_bits(scale);
  return !(scale < bits_float(0x7f800000u)) || (bits & kMantissa) == 0 ? scale : bits_float((bits | kMantissa) + 1);
}

/// With the scale that just fits a group: its farthest value becomes q's largest, or, where not symmetric, its range
/// (which always includes 0) becomes the 256 values of an int8. `ue8m0`: with the next power of two, so that no value
/// saturates; for symmetric ones.
CLEAVE_HD Quantizer quantizer_for(DType q, bool symmetric, bool ue8m0, const Reach& reach) {
  const float above = bits_float(uint32_t(reach.above));
  const float below = bits_float(uint32_t(reach.below));
  float scale = symmetric ? above / info_of(q).largest : above / kSteps + below / kSteps;
  if (scale < kSmallestScale) return {};
  Quantizer quantizer = quantizer_with(ue8m0 ? rounded_up_to_ue8m0(scale) : scale, 0);
  if (!symmetric) quantizer.zero = float_to_i8(multiply_add(below, quantizer.inverse, kLeast));
  return quantizer;
}

/// What is stored for x, before it is rounded and saturated as its type is (store_element).
CLEAVE_HD float quantized(const Quantizer& quantizer, bool symmetric, float x) {
  return symmetric ? x * quantizer.inverse : multiply_add(x, quantizer.inverse, float(quantizer.zero));
}

}  // namespace cleave

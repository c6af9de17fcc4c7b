// From codes of e2m1 to pairs of 16-bit floats, with scales that are powers of two (MXFP4) or e4m3 (NVFP4): exactly, as
// far as those have room; of NVFP4 always.
//
// A code's three lower bits, where the exponent ends and the mantissa begins, and its sign are a float: of bfloat16
// e2m1 * 2^-126, of float16 e2m1 * 2^-14. A scale that is as much larger moves it to where it belongs; elements are
// left 2^-weight_exponent of what they are where such a scale would be out of range.
//
// Scales are as many as every eighth code, so those of a fragment's two rows are made together, a pair.
#pragma once

#include "cleave/config/weight_lines.h"
#include "cleave/core/element.h"
#include "cleave/ptx/packed_16.h"

namespace cleave {

template <GemmConfig C>
class DequantiseE2m1 {
  static constexpr DType kType = C.operands.a;
  static constexpr bool kBfloat = kType == DType::bf16;
  static constexpr bool kPowers = C.weights.format == WeightFormat::mxfp4;
  static_assert(kBfloat || kType == DType::f16);
  static_assert(weight_exponent(C) == (kBfloat ? 24 : kPowers ? 0 : 7));
  static constexpr uint32_t kPlace = kBfloat ? 6 : 9;  // the code's lowest bit
  static constexpr uint32_t kOnes = 0x00010001;        // times a number of 16 bits: a pair of it

 public:
  struct Row {
    uint32_t scale;
  };

  CLEAVE_DEVICE static void rows(const uint32_t (&scales)[2], const uint32_t (&)[2], Row (&to)[2]) {
    uint32_t both = kPowers ? powers(scales) : e4m3(scales);
    if constexpr (kBfloat) both = ptx::multiply_pair<kType>(both, 0x7280 * kOnes);               // 2^(126 - 24)
    if constexpr (!kBfloat && !kPowers) both = ptx::multiply_pair<kType>(both, 0x5800 * kOnes);  // 2^(14 - 7)
    to[0] = {ptx::repeat_lower(both)};
    to[1] = {ptx::repeat_upper(both)};
  }

  /// Register `r` of a fragment.
  CLEAVE_DEVICE static uint32_t pair(uint32_t word, uint32_t r, const Row& row) {
    const uint32_t sign = (word << (12 - 4 * r)) & 0x80008000;
    const uint32_t shifted = 4 * r <= kPlace ? word << (kPlace - 4 * r) : word >> (4 * r - kPlace);
    const uint32_t code = (shifted & (0x00070007 << kPlace)) | sign;
    if constexpr (kBfloat || !kPowers) return ptx::multiply_pair<kType>(code, row.scale);
    constexpr uint32_t kUp = 0x7400 * kOnes;  // 2^14, for which powers leave no room
    return ptx::multiply_pair<kType>(ptx::multiply_pair<kType>(code, kUp), row.scale);
  }

 private:
  CLEAVE_DEVICE static uint32_t e4m3(const uint32_t (&scales)[2]) {
    const uint32_t halves = e4m3_to_f16_pair(scales[0], scales[1]);
    if constexpr (!kBfloat) return halves;
    return pack_pair(kType, f16_to_float(uint16_t(halves)), f16_to_float(uint16_t(halves >> 16)));
  }

  CLEAVE_DEVICE static uint32_t powers(const uint32_t (&scales)[2]) {
    return pack_pair(kType, power(scales[0]), power(scales[1]));
  }

  /// What rounds to 2^(scale - 127), 255 to no number.
  CLEAVE_DEVICE static float power(uint32_t scale) {
    // With the mantissa that tells a NaN from infinity; but float16 would round 2^-25 up for its sake.
    if constexpr (kBfloat) return bits_float(scale * 0x00800001);
    return bits_float(scale == 255 ? 0x7fc00000 : scale << 23);
  }
};

}  // namespace cleave

// From codes of MXFP4, e2m1 with powers of two as scales, to pairs of 16-bit floats: exactly, as far as those have room.
//
// A code's three lower bits, where the exponent ends and the mantissa begins, and its sign are a float: of bfloat16 e2m1 *
// 2^-126, which a scale that is left 2^-kWeightExponent of what it is moves to where it belongs; of float16 e2m1 * 2^-14.
#pragma once

#include "cleave/config/weight_lines.h"
#include "cleave/ptx/packed_16.h"

namespace cleave {

template <GemmConfig C>
class DequantiseMxfp4 {
  static constexpr DType kType = C.operands.a;
  static constexpr bool kBfloat = kType == DType::bf16;
  static_assert(kBfloat || kType == DType::f16);
  static_assert(kWeightExponent == 24);
  static constexpr uint32_t kPlace = kBfloat ? 6 : 9;  // the code's lowest bit
  static constexpr uint32_t kOnes = 0x00010001;        // times a number of 16 bits: a pair of it

 public:
  struct Row {
    uint32_t scale;
  };

  CLEAVE_DEVICE static Row row(uint32_t scale, uint32_t) { return {scale_of(scale) * kOnes}; }

  /// Register `r` of a fragment.
  CLEAVE_DEVICE static uint32_t pair(uint32_t word, uint32_t r, const Row& row) {
    const uint32_t sign = (word << (12 - 4 * r)) & 0x80008000;
    const uint32_t shifted = 4 * r <= kPlace ? word << (kPlace - 4 * r) : word >> (4 * r - kPlace);
    const uint32_t code = (shifted & (0x00070007 << kPlace)) | sign;
    if constexpr (kBfloat) return ptx::multiply_pair<kType>(code, row.scale);
    constexpr uint32_t kUp = 0x7400 * kOnes;  // 2^14
    return ptx::multiply_pair<kType>(ptx::multiply_pair<kType>(code, kUp), row.scale);
  }

 private:
  /// bfloat16: 2^(scale - 127 + 126 - 24). float16: 2^(scale - 127), of which the small ones are subnormal.
  CLEAVE_DEVICE static uint32_t scale_of(uint32_t scale) {
    constexpr uint32_t kNan = 255;
    if constexpr (kBfloat) return scale == kNan ? 0x7fc0 : min_of(scale + 102, 255u) << 7;
    if (scale == kNan) return 0x7e00;
    if (scale > 112) return min_of(scale - 112, 31u) << 10;
    return scale < 103 ? 0 : 1u << (scale - 103);
  }
};

}  // namespace cleave

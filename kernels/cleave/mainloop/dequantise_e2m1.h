// From codes of e2m1 to pairs of 16-bit floats, with scales that are powers of two (MXFP4) or e4m3 (NVFP4): exactly, as
// far as those have room; of NVFP4 always.
//
// A code's three lower bits, where the exponent ends and the mantissa begins, and its sign are a float: of bfloat16 e2m1 *
// 2^-126, which a scale that is left 2^-kWeightExponent of what it is moves to where it belongs; of float16 e2m1 * 2^-14.
// In the same way the bits of an e4m3 are a float: of bfloat16 e4m3 * 2^-120, of float16 e4m3 * 2^-8.
#pragma once

#include "cleave/config/weight_lines.h"
#include "cleave/ptx/packed_16.h"

namespace cleave {

template <GemmConfig C>
class DequantiseE2m1 {
  static constexpr DType kType = C.operands.a;
  static constexpr bool kBfloat = kType == DType::bf16;
  static_assert(kBfloat || kType == DType::f16);
  static_assert(kWeightExponent == 24);
  static constexpr uint32_t kPlace = kBfloat ? 6 : 9;  // the code's lowest bit
  static constexpr uint32_t kOnes = 0x00010001;        // times a number of 16 bits: a pair of it
  static constexpr uint32_t kNan = kBfloat ? 0x7fc0 : 0x7e00;

 public:
  struct Row {
    uint32_t scale;
  };

  CLEAVE_DEVICE static Row row(uint32_t scale, uint32_t) {
    if constexpr (C.weights.format == WeightFormat::mxfp4) return {e8m0(scale) * kOnes};
    return {e4m3(scale)};
  }

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
  CLEAVE_DEVICE static uint32_t e8m0(uint32_t scale) {
    if (scale == 255) return kNan;
    if constexpr (kBfloat) return min_of(scale + 102, 255u) << 7;
    if (scale > 112) return min_of(scale - 112, 31u) << 10;
    return scale < 103 ? 0 : 1u << (scale - 103);
  }

  /// A pair of the scale, of bfloat16 times 2^(126 - 24).
  CLEAVE_DEVICE static uint32_t e4m3(uint32_t scale) {
    const uint32_t magnitude = scale & 0x7f;
    if (magnitude == 0x7f) return kNan * kOnes;
    const uint32_t both = (magnitude << (kBfloat ? 4 : 7) | (scale & 0x80) << 8) * kOnes;
    if constexpr (!kBfloat) return ptx::multiply_pair<kType>(both, 0x5c00 * kOnes);  // 2^8
    constexpr uint32_t kUp = 0x7700 * kOnes;  // 2^111: 120 + 102 are out of range
    return ptx::multiply_pair<kType>(ptx::multiply_pair<kType>(both, kUp), kUp);
  }
};

}  // namespace cleave

// From codes of int4 to pairs of 16-bit floats, in few instructions: they are as many as the memory leaves time for.
//
// bfloat16: a code in the upper four bits of the mantissa is, without an exponent, the subnormal number code * 2^-130,
// which one multiply-add scales and takes 8 off. The scale that does so is out of range, so elements are left
// 2^-24 of what they are, and so are all sums; alpha makes up for it. Zero points of groups are taken off
// first, which is exact.
//
// float16 has no room for that: a code in the lower four bits of 1024 is 1024 + code.
#pragma once

#include "cleave/config/weight_lines.h"
#include "cleave/ptx/packed_16.h"

namespace cleave {

template <GemmConfig C>
class DequantiseInt4 {
  static constexpr DType kType = C.operands.a;
  static constexpr bool kSubnormal = kType == DType::bf16;
  static_assert(kSubnormal || kType == DType::f16);
  static_assert(weight_exponent(C) == (kSubnormal ? 24 : 0));
  static constexpr uint32_t kPlace = kSubnormal ? 3 : 0;  // the code's lowest bit
  static constexpr uint32_t kOnes = 0x00010001;           // times a number of 16 bits: a pair of it
  static constexpr uint32_t kBase = kSubnormal ? 0 : 0x6400 * kOnes;

 public:
  /// What a row has for one group, in pairs.
  struct Row {
    uint32_t scale, zero;
  };

  /// A fragment's two rows'. Scales lie in lower halves, zero points are codes.
  CLEAVE_DEVICE static void rows(const uint32_t (&scales)[2], const uint32_t (&zeros)[2], Row (&to)[2]) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 2; ++i) to[i] = row(scales[i], zeros[i]);
  }

  /// Register `r` of a fragment.
  CLEAVE_DEVICE static uint32_t pair(uint32_t word, uint32_t r, const Row& row) {
    const uint32_t shifted = r == 0 ? word << kPlace : word >> (4 * r - kPlace);
    const uint32_t code = (shifted & (0x000f000f << kPlace)) | kBase;
    if constexpr (kSubnormal && !C.weights.has_zero) return ptx::multiply_add_pair<kType>(code, row.scale, row.zero);
    return ptx::multiply_pair<kType>(ptx::subtract_pair<kType>(code, row.zero), row.scale);
  }

 private:
  CLEAVE_DEVICE static Row row(uint32_t scale, uint32_t zero) {
    const uint32_t both = ptx::repeat_lower(scale);
    if constexpr (!kSubnormal) return {both, code_of(zero)};
    constexpr uint32_t kUp = 0x7480 * kOnes, kMinusEight = 0xb500 * kOnes;  // 2^(130 - 24), -8 * 2^-24
    return {ptx::multiply_pair<kType>(both, kUp),
            C.weights.has_zero ? code_of(zero) : ptx::multiply_pair<kType>(both, kMinusEight)};
  }

  CLEAVE_DEVICE static uint32_t code_of(uint32_t zero) { return (zero << kPlace) * kOnes | kBase; }
};

}  // namespace cleave

// From codes of int4 to pairs of 16-bit floats, in few instructions: they are as many as the memory leaves time for.
//
// A fragment's first row has its codes in the lower halves of a word's bytes, the second in the upper ones. They are
// taken where they are, the second's as numbers 16 times as large, so that two shifts of four are saved.
//
// bfloat16: without an exponent such a code is the subnormal number code * 2^-133, or, from 8 * 16 on, the normal one
// that follows it. One multiply-add scales it and takes 8 off. The scale that does so is out of range, so elements are
// left 2^-27 of what they are, and so are all sums; alpha makes up for it. Zero points of groups are taken off first,
// which is exact.
//
// float16 has no room for that: with the bits of 1024 a code is 1024 + code, or 1024 + 16 * code.
#pragma once

#include "cleave/config/weight_lines.h"
#include "cleave/ptx/packed_16.h"

namespace cleave {

template <GemmConfig C>
class DequantiseInt4 {
  static constexpr DType kType = C.operands.a;
  static constexpr bool kSubnormal = kType == DType::bf16;
  static_assert(kSubnormal || kType == DType::f16);
  static_assert(weight_exponent(C) == (kSubnormal ? 27 : 0));
  static constexpr uint32_t kOnes = 0x00010001;  // times a number of 16 bits: a pair of it
  static constexpr uint32_t kBase = kSubnormal ? 0 : 0x6400 * kOnes;

 public:
  /// What a row has for one group, in pairs.
  struct Row {
    uint32_t scale, zero;
  };

  /// A fragment's two rows'. Scales lie in lower halves, zero points are codes.
  CLEAVE_DEVICE static void rows(const uint32_t (&scales)[2], const uint32_t (&zeros)[2], Row (&to)[2]) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 2; ++i) to[i] = row(scales[i], zeros[i], i);
  }

  /// Register `r` of a fragment, of row r % 2.
  CLEAVE_DEVICE static uint32_t pair(uint32_t word, uint32_t r, const Row& row) {
    const uint32_t shifted = r < 2 ? word : word >> 8, mask = 0x000f000f << place(r % 2);
    const uint32_t code = kSubnormal ? shifted & mask : ptx::and_or(shifted, mask, ptx::in_register<kBase>());
    if constexpr (kSubnormal && !C.weights.has_zero) return ptx::multiply_add_pair<kType>(code, row.scale, row.zero);
    constexpr uint32_t kSixteenth = 0x2c00 * kOnes;
    const uint32_t difference = kSubnormal || r % 2 == 0 ? ptx::subtract_pair<kType>(code, row.zero)
                                                         : ptx::multiply_add_pair<kType>(code, kSixteenth, row.zero);
    return ptx::multiply_pair<kType>(difference, row.scale);
  }

 private:
  /// The lowest bit of a code.
  CLEAVE_DEVICE static constexpr uint32_t place(uint32_t row) { return 4 * row; }

  CLEAVE_DEVICE static Row row(uint32_t scale, uint32_t zero, uint32_t i) {
    const uint32_t both = ptx::repeat_lower(scale);
    if constexpr (!kSubnormal)
      return {both, i == 0 ? kBase | zero * kOnes : (0xd400 | zero << 4) * kOnes};  // -64 - zero
    const uint32_t up = (i == 0 ? 0x7480 : 0x7280) * kOnes;                         // 2^(133 - 27), or a 16th of it
    constexpr uint32_t kMinusEight = 0xb380 * kOnes;                                // -8 * 2^-27
    return {ptx::multiply_pair<kType>(both, up),
            C.weights.has_zero ? (zero << place(i)) * kOnes : ptx::multiply_pair<kType>(both, kMinusEight)};
  }
};

}  // namespace cleave

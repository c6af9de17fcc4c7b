// From codes of int4 and e2m1 to four 8-bit elements in one register, beside activations of 8 bits. All are exact, and
// none is scaled: sums of a group's columns are, as float32.
//
// A word has four columns, and in each byte the codes of the fragment's two rows, the lower half the first one's
// (memory/weight_layout.h).
//
// int8: a code in the upper half of its byte is 16 * code, and 16 * (code - 8) with the sign bit turned over. A zero
// point is taken off below a bit that no borrow passes.
//
// e4m3: 0 to 15 are 2^9 times the numbers with those bits, subnormal ones and the first with an exponent. A difference
// x < 0 becomes its magnitude, ~x + 1, and a sign. In e2m1 the exponent ends and the mantissa begins where e4m3's do,
// which is 2^-6 of the code.
//
// int8 has twice what e2m1 stands for, from a table of 8 bytes: by the codes as they are, whose signs make nothing of
// the negative ones, and by those with the signs turned over, for what is taken off.
#pragma once

#include "cleave/config/weight_lines.h"
#include "cleave/core/bytes.h"
#include "cleave/core/element.h"

namespace cleave {

template <GemmConfig C>
class DequantiseBytes {
  static constexpr bool kIntegers = C.operands.a == DType::i8, kCodesOfE2m1 = C.weights.format != WeightFormat::int4;
  static constexpr bool kZeros = C.weights.has_zero;
  static_assert(kIntegers || C.operands.a == DType::e4m3);
  static_assert(weight_exponent(C) == (kIntegers ? (kCodesOfE2m1 ? -1 : kZeros ? 0 : -4) : kCodesOfE2m1 ? 6 : 9));
  static constexpr uint32_t kOnes = 0x01010101;  // times a byte: four of it
  static constexpr uint32_t kSigns = 0x80 * kOnes;

 public:
  /// What a row has for one group.
  struct Row {
    float scale;    // of a sum
    uint32_t zero;  // four of it
  };

  CLEAVE_HD static void rows(const uint32_t (&scales)[2], const uint32_t (&zeros)[2], Row (&to)[2]) {
    const uint32_t pair =
        C.weights.format == WeightFormat::nvfp4 ? e4m3_to_f16_pair(scales[0], scales[1]) : scales[0] | scales[1] << 16;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 2; ++i) to[i] = {scale_of(pair >> 16 * i), zeros[i] * kOnes};
  }

  /// The elements of a word's lower halves, or of its upper ones.
  CLEAVE_HD static uint32_t quad(uint32_t word, bool upper, const Row& row) {
    const uint32_t in_upper = upper ? word : word << 4, in_lower = upper ? word >> 4 : word;
    if constexpr (kCodesOfE2m1 && kIntegers) return twice_e2m1(word, upper);
    if constexpr (kCodesOfE2m1) {
      const uint32_t code = upper ? word >> 2 : word << 2;
      return (code & 0x1c * kOnes) | (in_upper & kSigns);
    }
    if constexpr (kIntegers && !kZeros) return turn_signs<0xf0 * kOnes>(in_upper);
    const uint32_t difference = kZeros ? turn_signs<0x0f * kOnes>(in_lower) - row.zero : in_lower;
    if constexpr (kIntegers) return difference ^ kSigns;
    // A bit that is set in what is not negative, and the bits below it: with a zero point of 8 the code's own.
    constexpr uint32_t kBit = kZeros ? 7 : 3, kMagnitude = kZeros ? 0x1f : 0x07;
    const uint32_t negative = ~(difference >> kBit) & kOnes;
    return ((difference & kMagnitude * kOnes) ^ negative * kMagnitude) + negative * 0x81;
  }

 private:
  CLEAVE_HD static float scale_of(uint32_t bits) {
    if constexpr (C.weights.format == WeightFormat::mxfp4) return e8m0_to_float(uint8_t(bits));
    return f16_to_float(uint16_t(bits));
  }

  /// Both rows' together: those of the other one are the compiler's to keep.
  CLEAVE_HD static uint32_t twice_e2m1(uint32_t word, bool upper) {
    uint32_t columns[2];  // two of both rows
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t codes = word >> (16 * i), turned = codes ^ 0x8888;
      constexpr uint32_t kLow = 0x03020100, kHigh = 0x0c080604;
      columns[i] = (pick_bytes(kLow, kHigh, codes) + kSigns - pick_bytes(kLow, kHigh, turned)) ^ kSigns;
    }
    return pick_bytes(columns[0], columns[1], upper ? 0x7531 : 0x6420);
  }

  /// (quad & Mask) ^ kSigns, which the compiler would make two instructions of, each with a constant of its own.
  template <uint32_t Mask>
  CLEAVE_HD static uint32_t turn_signs(uint32_t quad) {
#if defined(__CUDA_ARCH__)
    uint32_t turned, signs;
    asm("mov.b32 %0, %1;" : "=r"(signs) : "n"(kSigns));
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(turned) : "r"(quad), "r"(Mask), "r"(signs));
    return turned;
#else
    return (quad & Mask) ^ kSigns;
#endif
  }
};

}  // namespace cleave

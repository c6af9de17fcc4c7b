// Fragments of float32 operands as sums of two parts (core/float_parts.h). The parts are made of what a thread has read
// for mma.sync, in registers: memory and shared memory hold float32, as for other precisions, and nothing is prepared.
#pragma once

#include "cleave/core/float_parts.h"
#include "cleave/ptx/packed_16.h"

namespace cleave {

/// What the tensor cores multiply.
CLEAVE_HD constexpr DType type_of_parts(Precision p) {
  return p == Precision::bf16x3 ? DType::bf16 : DType::f32;
}

/// How many 32-byte steps of float32 make one of the parts: of bfloat16 two.
CLEAVE_HD constexpr uint32_t loads_per_step(Precision p) {
  return p == Precision::bf16x3 ? 2 : 1;
}

/// An operand's registers of one step of the tensor cores: strips of 16 lines, each as load_fragment has it.
template <Precision P, uint32_t Strips>
struct FragmentParts {
  uint32_t high[Strips][4], low[Strips][4];

  /// `loaded`: a strip's float32. Returns 0 but where a low part is an infinity or a NaN, as of what stands alone:
  /// times 0 it is a NaN.
  ///
  /// A register of bfloat16 has two neighbours along K. Which elements are called neighbours does not matter, if it is
  /// the same in both operands: here those that one thread has read.
  template <bool RowsFirst>
  CLEAVE_DEVICE uint32_t split(uint32_t strip, const uint32_t (&loaded)[loads_per_step(P)][4]) {
    if constexpr (P == Precision::tf32x3) {
      float alone = 0;
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        const FloatParts parts = float_parts<P>(bits_float(loaded[0][i]));
        high[strip][i] = float_bits(parts.high);
        low[strip][i] = float_bits(parts.low);
        alone = __fmaf_rn(parts.low, 0.0f, alone);
      }
      return float_bits(alone);
    } else {
      uint32_t alone = 0;
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t load = RowsFirst ? i / 2 : i % 2;
        const uint32_t first = RowsFirst ? i % 2 : i / 2 * 2, second = first + (RowsFirst ? 2 : 1);
        const float x = bits_float(loaded[load][first]), y = bits_float(loaded[load][second]);
        const uint32_t pair = high[strip][i] = pack_pair(DType::bf16, x, y);
        low[strip][i] = pack_pair(DType::bf16, x - bits_float(pair << 16), y - bits_float(pair & 0xffff0000u));
        alone = ptx::multiply_add_pair<DType::bf16>(low[strip][i], 0, alone);
      }
      return alone;
    }
  }

  /// Leaves what is multiplied with low parts.
  CLEAVE_DEVICE void drop_alone() {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Strips * 4; ++i) {
      uint32_t &of_high = high[i / 4][i % 4], &of_low = low[i / 4][i % 4];
      uint32_t dropped = stands_alone(of_high) ? ~0u : 0;
      if constexpr (P == Precision::bf16x3)
        dropped = (stands_alone(of_high & 0xffff0000u) ? 0xffff0000u : 0) | (stands_alone(of_high << 16) ? 0xffffu : 0);
      of_high &= ~dropped;
      of_low &= ~dropped;
    }
  }
};

}  // namespace cleave

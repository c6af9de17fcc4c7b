// Packed panels of float32 as sums of two parts.
#pragma once

#include <algorithm>
#include <cstddef>

#include "cleave/core/float_parts.h"

namespace cleave::cpu {

/// An operand's panels of one K block. The parts are there where the problem's precision has parts.
template <size_t most>
struct Panels {
  float values[most];   // as packed; once they are split, their high parts
  float crossed[most];  // high parts that are multiplied with low ones: those that do not stand alone
  float low[most];

  template <Precision P>
  void split(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const FloatParts parts = float_parts<P>(values[i]);
      const bool alone = stands_alone(float_bits(parts.high));
      values[i] = parts.high;
      crossed[i] = alone ? 0 : parts.high;
      low[i] = alone ? 0 : parts.low;
    }
  }

  void split(Precision precision, size_t count) {
    precision == Precision::bf16x3 ? split<Precision::bf16x3>(count) : split<Precision::tf32x3>(count);
  }
};

}  // namespace cleave::cpu

// Convolutions of narrow groups of small images (direct/at_once.h): filters, as they lie, and a thread's registers.
#pragma once

#include "cleave/config/direct_columns.h"
#include "cleave/config/direct_work.h"

namespace cleave {

/// Bytes of a thread's filters, which it loads by pieces that all threads' are multiples of.
CLEAVE_HD constexpr uint32_t at_once_filter_bytes(const GemmConfig& c) {
  return c.direct.vector * c.direct.height.taps * c.direct.width.taps * c.direct.group * size_of(c.operands.a);
}
CLEAVE_HD constexpr uint32_t at_once_filter_piece(const GemmConfig& c) {
  const uint32_t bytes = at_once_filter_bytes(c);
  return min_of(bytes & (0u - bytes), 16u);
}

/// What a CTA asks for.
CLEAVE_HD constexpr uint32_t at_once_bytes(const GemmConfig& c) {
  return c.tile.n / c.direct.vector * at_once_filter_bytes(c);
}

/// Registers of a thread, but for addresses: pixels, filters, sums.
CLEAVE_HD constexpr uint32_t at_once_registers(const GemmConfig& c) {
  const uint32_t words = max_of(c.direct.vector * size_of(c.operands.a) / 4, 1u);
  const uint32_t pixels = c.direct.height.taps * gathered_span(c.conv.kind, c.direct.width, c.tile.m).size();
  return pixels * words + at_once_filter_bytes(c) / min_of(at_once_filter_piece(c), 4u) + c.tile.m * c.direct.vector;
}

}  // namespace cleave

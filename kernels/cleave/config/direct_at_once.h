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

/// Whether piece `i` of a thread's filters, which follow each other, each line by line, has any of line `r`.
CLEAVE_HD constexpr bool has_filter_line(const GemmConfig& c, uint32_t i, uint32_t r) {
  const uint32_t elements = at_once_filter_piece(c) / size_of(c.operands.a),
                 line = c.direct.width.taps * c.direct.group;
  for (uint32_t filter = 0; filter < c.direct.vector; ++filter) {
    const uint32_t first = (filter * c.direct.height.taps + r) * line;
    if (i * elements < first + line && (i + 1) * elements > first) return true;
  }
  return false;
}

/// Registers of a thread, but for addresses: pixels, filters, sums.
inline constexpr uint32_t kAtOnceRegisters = 88;
CLEAVE_HD constexpr uint32_t at_once_registers(const GemmConfig& c, bool all_filters) {
  const uint32_t words = max_of(c.direct.vector * size_of(c.operands.a) / 4, 1u), piece = at_once_filter_piece(c);
  const uint32_t pixels = c.direct.height.taps * gathered_span(c.conv.kind, c.direct.width, c.tile.m).size();
  const uint32_t pieces = at_once_filter_bytes(c) / piece, of_piece = max_of(piece / 4, 1u);
  uint32_t held = all_filters ? pieces : 0;
  for (uint32_t r = 0; r < (all_filters ? 0 : c.direct.height.taps); ++r) {
    uint32_t of_line = 0;
    for (uint32_t i = 0; i < pieces; ++i) of_line += has_filter_line(c, i, r);
    held = max_of(held, of_line);
  }
  return pixels * words + held * of_piece + c.tile.m * c.direct.vector;
}

/// Whether a thread reads all of its filters before it multiplies, or, where registers do not suffice, line by line.
CLEAVE_HD constexpr bool holds_all_filters(const GemmConfig& c) {
  return at_once_registers(c, true) <= kAtOnceRegisters;
}
CLEAVE_HD constexpr uint32_t at_once_registers(const GemmConfig& c) {
  return at_once_registers(c, holds_all_filters(c));
}

}  // namespace cleave

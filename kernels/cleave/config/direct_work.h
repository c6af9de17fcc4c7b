// How the direct kernels' threads share a CTA's work.
#pragma once

#include "cleave/config/direct_spread_wgrad.h"
#include "cleave/config/gemm_config.h"

namespace cleave {

inline constexpr uint32_t kDirectThreads = 256;

/// direct: lines that a CTA has threads for.
CLEAVE_HD constexpr uint32_t direct_lines(const GemmConfig& c) {
  return kDirectThreads / (c.tile.n / c.direct.vector * c.direct.strips);
}

/// direct, wgrad: strips that a CTA's threads walk over at the same time, where each has `vector` of its `channels` and
/// one of `lines` of the filter's taps (columns: all); sums that each of them has; and elements that a CTA makes.
CLEAVE_HD constexpr uint32_t direct_places(uint32_t channels, uint32_t vector, uint32_t lines) {
  return kDirectThreads / (channels / vector * lines);
}
CLEAVE_HD constexpr uint32_t direct_places(const GemmConfig& c) {
  const bool has_all = c.direct.method == DirectMethod::columns;  // of the filter's lines
  return direct_places(c.tile.n, c.direct.vector, has_all ? 1 : c.direct.height.taps);
}
CLEAVE_HD constexpr uint32_t direct_sums(const GemmConfig& c) {
  const uint32_t lines = c.direct.method == DirectMethod::columns ? c.direct.height.taps : 1;
  return lines * c.direct.width.taps * c.direct.group * c.direct.vector;
}

/// shift, wgrad: from a filter's sums to the next one's, so that those of eight filters lie in different banks.
CLEAVE_HD constexpr uint32_t shift_sum_row(const GemmConfig& c) {
  const uint32_t elements = c.direct.height.taps * c.direct.width.taps * c.tile.k;
  return elements + (40 - elements % 32) % 32;
}
CLEAVE_HD constexpr uint32_t direct_made(const GemmConfig& c) {
  const uint32_t taps = c.direct.height.taps * c.direct.width.taps;
  if (c.direct.method == DirectMethod::spread) return tap_made(c);
  if (c.direct.method == DirectMethod::windows) return c.tile.n * taps * c.direct.vector;
  if (c.direct.method == DirectMethod::shift) return c.tile.n * shift_sum_row(c);
  if (c.direct.method == DirectMethod::lines) return c.tile.n * taps * c.tile.k;
  return c.tile.n * taps * c.direct.group;
}

/// direct: from a tap's filters to the next one's in shared memory; a few floats more than there are, since neighbours
/// in global memory are taps.
CLEAVE_HD constexpr uint32_t direct_filter_row(const GemmConfig& c) {
  return c.tile.n + 4;
}

}  // namespace cleave

// Few channels that are made, of many: outputs of few filters, and data gradients of few channels. Gathered pixels
// are the rows of a product on tensor cores (direct/spread.h): columns are all taps of a few channels, so that each
// pixel is multiplied once, whatever the filter's size. The parts of a pixel that is made then lie with its neighbours.
//
// A CTA makes cells, of as many pixels as a data gradient's stride along each axis (outputs: of one, the stride is 1):
// what they meet is at fixed distances (`gathered_at`). It goes down the lines of the gathered images, some at a time.
// Parts lie in a ring of lines in shared memory until the last cell that wants them has been made.
#pragma once

#include "cleave/config/gemm_config.h"

namespace cleave {

inline constexpr uint32_t kSpreadStrip = 16;               // pixels of a tensor core's rows: neighbours along a line
inline constexpr uint32_t kSpreadRows = 2 * kSpreadStrip;  // of a warp
inline constexpr uint32_t kSpreadDepth = 32;  // gathered channels of a thread's vector, and of its three neighbours'

/// What cells meet along an axis: the nearest and the farthest, and how many pixels more than cells that makes.
CLEAVE_HD constexpr GatheredSpan cell_span(Conv kind, const DirectAxis& axis) {
  return gathered_span(kind, axis, axis.stride);
}
CLEAVE_HD constexpr uint32_t cell_reach(Conv kind, const DirectAxis& axis) {
  return cell_span(kind, axis).size() - 1;
}

/// Gathered pixels of a step: along a line, and lines.
CLEAVE_HD constexpr uint32_t spread_width(const GemmConfig& c) {
  return c.direct.strips * kSpreadStrip;
}
CLEAVE_HD constexpr uint32_t spread_lines(const GemmConfig& c) {
  return c.tile.m / spread_width(c);
}

/// K: each plane's channels in parts, for all taps along depth, which are parts of the sum and no columns.
CLEAVE_HD constexpr uint32_t spread_parts(const GemmConfig& c) {
  return ceil_div(c.tile.k, kSpreadDepth);
}
CLEAVE_HD constexpr uint32_t spread_depth(const GemmConfig& c) {
  return c.direct.depth.taps * spread_parts(c);
}

/// Columns: channels of a tap follow each other; and blocks of 8 of them that a warp has.
CLEAVE_HD constexpr uint32_t spread_columns(const GemmConfig& c) {
  return c.direct.height.taps * c.direct.width.taps * c.tile.n;
}
CLEAVE_HD constexpr uint32_t spread_blocks(const GemmConfig& c) {
  return ceil_div(ceil_div(spread_columns(c), 8u), c.warps.n);
}

/// Filters in shared memory, each column's behind each other: bytes of a column, of which eight lie in different
/// banks two by two, and of all.
CLEAVE_HD constexpr uint32_t spread_filter_bytes(const GemmConfig& c) {
  return (spread_depth(c) | 1) * kSpreadDepth * 2;
}
CLEAVE_HD constexpr uint32_t spread_filters_bytes(const GemmConfig& c) {
  return c.warps.n * spread_blocks(c) * 8 * spread_filter_bytes(c);
}

/// Parts: floats of a column of a line, such that pixels of four pairs of columns lie in different banks.
CLEAVE_HD constexpr uint32_t spread_line(const GemmConfig& c) {
  return spread_width(c) + 4;
}

/// What a CTA asks for, with so many lines in its ring: filters, then parts.
CLEAVE_HD constexpr uint32_t spread_bytes(const GemmConfig& c, uint32_t ring) {
  return spread_filters_bytes(c) + ring * spread_columns(c) * spread_line(c) * uint32_t(sizeof(float));
}

/// Lines of the ring: those of a step, and those before that pixels of this step meet. With room for the next step's,
/// warps need not wait for others to have made their pixels.
CLEAVE_HD constexpr uint32_t spread_ring(const GemmConfig& c) {
  constexpr uint32_t kRoom = 96 * 1024;  // bytes that leave it to another CTA of the SM
  const uint32_t lines = spread_lines(c), least = lines + cell_reach(c.conv.kind, c.direct.height);
  return spread_bytes(c, least + lines) <= kRoom ? least + lines : least;
}

CLEAVE_HD constexpr uint32_t spread_bytes(const GemmConfig& c) {
  return spread_bytes(c, spread_ring(c));
}

}  // namespace cleave

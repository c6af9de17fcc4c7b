// Convolutions by WGMMA line by line down the images (direct/sweep.h): where pixels and filters lie in shared memory.
#pragma once

#include "cleave/config/direct_work.h"
#include "cleave/conv/column_share.h"
#include "cleave/conv/direct_conv.h"
#include "cleave/memory/descriptor.h"

namespace cleave {

inline constexpr uint32_t kSweepRows = 64;      // pixels of a line that a warpgroup makes
inline constexpr uint32_t kSweepGroups = 2;     // warpgroups, each with lines of its own
inline constexpr uint32_t kSweepThreads = 128;  // of one
inline constexpr uint32_t kSweepCtaThreads = (kSweepGroups + 1) * kSweepThreads;
inline constexpr uint32_t kSweepConsumerRegisters = 232, kSweepProducerRegisters = 40;  // 168 before they are dealt
inline constexpr uint32_t kSweepAlignment = 1024, kSweepBarrier = sizeof(uint64_t);     // bytes

/// Bytes of a pixel's channels that WGMMA sees as a row, and so many parts of them: as wide as all parts can be.
CLEAVE_HD constexpr uint32_t sweep_width(const GemmConfig& c) {
  return line_bytes(Major::mn, c.tile.k, c.operands.a);
}
CLEAVE_HD constexpr uint32_t sweep_parts(const GemmConfig& c) {
  return c.tile.k * size_of(c.operands.a) / sweep_width(c);
}

/// Columns of an instruction: a block of filters for each line that a gathered line is met by.
CLEAVE_HD constexpr uint32_t sweep_columns(const GemmConfig& c) {
  return c.direct.height.taps * c.tile.n;
}

/// Gathered pixels of a line, and bytes of a part of them, and of all.
CLEAVE_HD constexpr uint32_t sweep_reach(const GemmConfig& c) {
  return kSweepRows + c.direct.width.taps - 1;
}
CLEAVE_HD constexpr uint32_t sweep_part_bytes(const GemmConfig& c) {
  return round_up(sweep_reach(c) * sweep_width(c), kSweepAlignment);
}
CLEAVE_HD constexpr uint32_t sweep_line_bytes(const GemmConfig& c) {
  return sweep_parts(c) * sweep_part_bytes(c);
}

/// Gathered pixels of an image's line that lie together: with several images beside each other, whole lines with what
/// lies around them.
CLEAVE_HD constexpr uint32_t sweep_length(const GemmConfig& c, const DirectShape& shape) {
  return shape.together > 1 ? shape.made[1] + c.direct.width.taps - 1 : sweep_reach(c);
}

/// Bytes of a row of filters: of channels that are gathered, or, for data gradients, of those of one line's block.
CLEAVE_HD constexpr uint32_t sweep_filter_line(const GemmConfig& c) {
  return c.conv.kind == Conv::dgrad ? c.tile.n * size_of(c.operands.a) : sweep_width(c);
}

/// Taps along the line, of all planes.
CLEAVE_HD constexpr uint32_t sweep_taps(const GemmConfig& c) {
  return c.direct.depth.taps * c.direct.width.taps;
}

/// Filters of a part of the channels, at one tap along the line of one plane; and all.
CLEAVE_HD constexpr uint32_t sweep_block_bytes(const GemmConfig& c) {
  return sweep_columns(c) * sweep_width(c);
}
CLEAVE_HD constexpr uint32_t sweep_filter_bytes(const GemmConfig& c) {
  return sweep_taps(c) * sweep_parts(c) * sweep_block_bytes(c);
}

/// The tap of a filter, in the order in which it lies, whose columns are block `line` of those of plane `d` and `tap`
/// along the line. Data gradients meet filters the other way round.
CLEAVE_HD constexpr uint32_t sweep_tap(const GemmConfig& c, uint32_t d, uint32_t line, uint32_t tap) {
  const uint32_t down = c.direct.height.taps, across = c.direct.width.taps, number = (d * down + line) * across + tap;
  return c.conv.kind == Conv::dgrad ? c.direct.depth.taps * down * across - 1 - number : number;
}

/// A column of strips: the first plane that is made, where in its image that is, and its first pixel along the line.
struct SweepColumn {
  uint32_t plane, image, z, x0;
};
CLEAVE_HD constexpr SweepColumn sweep_column(const DirectShape& shape, uint32_t number) {
  SweepColumn column = {};
  uint32_t group = 0, along = 0;
  shape.columns.divmod(number, group, along);
  column.plane = group * shape.together;
  shape.depths.divmod(column.plane, column.image, column.z);
  column.x0 = along * kSweepRows;
  return column;
}

/// Lines that warpgroup `number` of all multiplies: those it gathers of each of its columns, of all planes.
CLEAVE_HD constexpr uint32_t sweep_turns(const GemmConfig& c, const DirectShape& shape, uint32_t number) {
  const ColumnShare share(shape, number);
  return (share.cells() + share.columns(shape) * (c.direct.height.taps - 1)) * c.direct.depth.taps;
}

/// Where a row of a column's strips lies: so many planes, and so many pixels along the line, after the first.
struct SweepPlace {
  uint32_t beside, x;
};
CLEAVE_HD constexpr SweepPlace sweep_place(const GemmConfig& c, const DirectShape& shape, uint32_t row) {
  const uint32_t length = sweep_length(c, shape), beside = shape.together > 1 ? row / length : 0;
  return {beside, row - beside * length};
}

/// Shared memory from an aligned address on: filters, the warpgroups' lines, then barriers, one of each tap's filters
/// and two of each line.
CLEAVE_HD constexpr uint32_t sweep_filters_full(const GemmConfig& c, uint32_t smem, uint32_t tap) {
  return smem + sweep_filter_bytes(c) + kSweepGroups * c.tile.stages * sweep_line_bytes(c) + tap * kSweepBarrier;
}
CLEAVE_HD constexpr uint32_t sweep_bytes(const GemmConfig& c) {
  return kSweepAlignment + sweep_filters_full(c, 0, sweep_taps(c) + 2 * kSweepGroups * c.tile.stages);
}

}  // namespace cleave

// Convolutions by WGMMA line by line down the images (direct/sweep.h): what of pixels and filters lies in shared memory.
#pragma once

#include "cleave/config/direct_work.h"
#include "cleave/memory/descriptor.h"

namespace cleave {

inline constexpr uint32_t kSweepRows = 64;   // pixels of a line that a warpgroup makes
inline constexpr uint32_t kSweepGroups = 2;  // warpgroups, each with lines of its own
inline constexpr uint32_t kSweepAlignment = 1024;

/// Bytes of a pixel's channels that WGMMA sees as a row, and so many parts of them.
CLEAVE_HD constexpr uint32_t sweep_width(const GemmConfig& c) {
  return min_of(c.tile.k * size_of(c.operands.a), 128u);
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

/// Filters of a part of the channels, at one tap along the line of one plane; and all.
CLEAVE_HD constexpr uint32_t sweep_block_bytes(const GemmConfig& c) {
  return sweep_columns(c) * sweep_width(c);
}
CLEAVE_HD constexpr uint32_t sweep_filter_bytes(const GemmConfig& c) {
  return c.direct.depth.taps * c.direct.width.taps * sweep_parts(c) * sweep_block_bytes(c);
}

CLEAVE_HD constexpr uint32_t sweep_bytes(const GemmConfig& c) {
  return kSweepAlignment + sweep_filter_bytes(c) + kSweepGroups * c.tile.stages * sweep_line_bytes(c);
}

}  // namespace cleave

// How a tile is cut into units, of each of which a kernel leaves a partial result of what D is reduced to. Which
// elements a partial result is of, and in which order they are joined, follows from the kernel alone: never from who is
// done first.
#pragma once

#include "cleave/config/gemm_config.h"
#include "cleave/config/output.h"
#include "cleave/core/reduction.h"

namespace cleave {

/// Rows of a unit: those of D in a block of accumulators.
CLEAVE_HD constexpr uint32_t reduced_rows(const GemmConfig& c) {
  return gates_rows(c) ? 8 : 16;
}

/// Whether one CTA finishes a tile. Where several share it, any of them may finish any block.
CLEAVE_HD constexpr bool finishes_whole_tiles(const GemmConfig& c) {
  return c.schedule.split != SplitKMode::parallel && c.cluster.k == 1;
}

/// Columns of a unit: those of D that a warp has of a tile, or those of a block.
CLEAVE_HD constexpr uint32_t reduced_columns(const GemmConfig& c) {
  if (!finishes_whole_tiles(c)) return 8;
  return has_wgmma(c.family) ? output_columns(c) : output_columns(c) / c.warps.n;
}

/// Units that so many tiles have, along M and along N.
CLEAVE_HD constexpr uint32_t reduced_row_units(const GemmConfig& c, uint32_t tiles) {
  return tiles * c.cluster.multicast_m * (output_rows(c) / reduced_rows(c));
}
CLEAVE_HD constexpr uint32_t reduced_column_units(const GemmConfig& c, uint32_t tiles) {
  return tiles * c.cluster.multicast_n * (output_columns(c) / reduced_columns(c));
}

/// Whether an output is reduced over groups.
CLEAVE_HD constexpr bool reduces_groups(const GemmConfig& c) {
  bool found = false;
  for (uint32_t i = 0; i < c.epilogue.function.outputs; ++i) {
    const FunctionOperandConfig output = c.epilogue.function.output(i);
    found |= output.reduction != Reduction::none && is_over_groups(c.schedule.grouping, output.shape);
  }
  return found;
}

}  // namespace cleave

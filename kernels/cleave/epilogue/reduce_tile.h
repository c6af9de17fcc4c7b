// What is reduced of D, unit by unit (config/reductions.h): a thread joins what it has of a row, or of all, as it goes
// through a unit's blocks; then lanes that share a line join theirs, and one of them stores a partial result. Another
// kernel joins those (reduce/reduce_partials.h).
#pragma once

#include "cleave/config/clusters.h"
#include "cleave/config/output.h"
#include "cleave/config/reductions.h"
#include "cleave/core/reduction.h"
#include "cleave/tile/tile.h"

namespace cleave {

/// Whether a block is the last of its unit that a thread comes to. Columns have theirs block by block: sums for all of
/// a tile's would take too many registers.
template <GemmConfig C, InputShape Shape>
CLEAVE_DEVICE bool ends_unit(uint32_t block) {
  constexpr uint32_t kStored = gated(C) ? Fragment<C>::kUpBlocks : Fragment<C>::kColBlocks;
  return Shape == InputShape::row || !finishes_whole_tiles(C) || block % Fragment<C>::kColBlocks == kStored - 1;
}

/// What a thread has of a unit: of two rows (a column's), or of one where gates are joined to it, of two columns (a
/// row's), or, the first, of all.
struct UnitParts {
  float line[2] = {};

  /// The parts of a block.
  template <Reduction R, InputShape Shape>
  CLEAVE_DEVICE void add(const float (&parts)[4]) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      float& own = line[Shape == InputShape::column ? i / 2 : Shape == InputShape::row ? i % 2 : 0];
      own = joined(R, own, parts[i]);
    }
  }

  /// Lanes of a quad share a row, every fourth one a column, all of a warp everything. By whole warps.
  template <Reduction R, InputShape Shape>
  CLEAVE_DEVICE void join_lanes() {
    constexpr uint32_t kFirst = Shape == InputShape::row ? 4 : 1, kEnd = Shape == InputShape::column ? 4 : 32;
    CLEAVE_UNROLL
    for (uint32_t distance = kFirst; distance < kEnd; distance *= 2) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < (Shape == InputShape::scalar ? 1 : 2); ++i)
        line[i] = joined(R, line[i], __shfl_xor_sync(0xffffffffu, line[i], distance));
    }
  }
};

/// The partial results of the unit that `block` ends, of output I. `rows_of_d`: of the block's rows. Units outside
/// D have theirs, too, so that those of classes and groups, whose rows are counted tile by tile, follow each other.
template <GemmConfig C, uint32_t I>
CLEAVE_DEVICE void store_unit(const GemmParams& p, const Tile<C>& tile, uint32_t block, const uint32_t (&rows_of_d)[2],
                              const UnitParts& parts) {
  constexpr InputShape kShape = C.epilogue.function.output(I).shape;
  const uint32_t row = tile.row(block), col = tile.col(block), lane = threadIdx.x % 32;
  uint32_t row_in_units = row, col_in_units = col;
  if constexpr (C.schedule.grouping == Grouping::classes) row_in_units += tile.conv_class->tiles_before * group_step(C);
  if constexpr (C.schedule.grouping == Grouping::m) row_in_units += tile.to_units;
  if constexpr (C.schedule.grouping == Grouping::n) col_in_units += tile.to_units;
  const uint32_t row_unit = row_in_units / reduced_rows(C), col_unit = col_in_units / reduced_columns(C);
  const FunctionOperand& to = p.epilogue.outputs[I];
  float* const partials = static_cast<float*>(to.data) + tile.batch * to.batch_stride;
  if constexpr (kShape == InputShape::column) {
    if (lane % 4 != 0) return;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Fragment<C>::kLines; ++i)
      if (row + i * 8 < tile.m_end(p.size)) partials[col_unit * to.stride + rows_of_d[i]] = parts.line[i];
  } else if constexpr (kShape == InputShape::row) {
    if (lane >= 4) return;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 2; ++i)
      if (col + i < tile.n_end(p.size)) partials[row_unit * to.stride + col + i] = parts.line[i];
  } else if (lane == 0) {
    constexpr bool kByColumns = C.schedule.grouping == Grouping::n;  // a group's units follow each other
    partials[kByColumns ? col_unit * to.stride + row_unit : row_unit * to.stride + col_unit] = parts.line[0];
  }
}

}  // namespace cleave

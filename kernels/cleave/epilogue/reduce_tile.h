// What is reduced of D, unit by unit (config/reductions.h): a thread joins what it has of a row, or of all, as it goes
// through a unit's blocks; then lanes that share a line join theirs, and one of them stores a partial result. Another
// kernel joins those (reduce/reduce_partials.h).
//
// Lanes that share columns deal them among each other: of eight columns, those of four blocks, seven shuffles leave
// each of eight lanes with one, and a warp stores 32 neighbours.
#pragma once

#include "cleave/config/reductions.h"
#include "cleave/core/reduction.h"
#include "cleave/tile/tile.h"

namespace cleave {

/// Blocks side by side whose columns lanes join together, where blocks come in order: as many as have a column for each
/// of a warp's lanes, or half of them beside what is read of matrices. Registers have no room for those of a whole
/// tile.
template <GemmConfig C>
inline constexpr uint32_t kBlocksJoined = !finishes_whole_tiles(C)                               ? 1
                                          : inputs_by_element(C, C.epilogue.function.inputs) > 0 ? 2
                                                                                                 : 4;

/// Whether a block is the last of its unit that a thread comes to, or of those whose columns are joined together.
template <GemmConfig C, InputShape Shape>
CLEAVE_DEVICE bool ends_unit(uint32_t block) {
  constexpr uint32_t kStored = gated(C) ? Fragment<C>::kUpBlocks : Fragment<C>::kColBlocks;
  const uint32_t of_row = block % Fragment<C>::kColBlocks;
  if (!finishes_whole_tiles(C) || of_row == kStored - 1) return true;
  return Shape == InputShape::row && of_row % kBlocksJoined<C> == kBlocksJoined<C> - 1;
}

/// What a thread has of a unit: of two rows (a column's), of two columns of each block (a row's), or, the first, of
/// all.
template <GemmConfig C>
struct UnitParts {
  static constexpr uint32_t kColumns = 2 * kBlocksJoined<C>;
  float line[kColumns] = {};

  /// The parts of a block.
  template <Reduction R, InputShape Shape>
  CLEAVE_DEVICE void add(uint32_t block, const float (&parts)[4]) {
    const uint32_t first = block % Fragment<C>::kColBlocks % kBlocksJoined<C> * 2;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      float& own = line[Shape == InputShape::column ? i / 2 : Shape == InputShape::row ? first + i % 2 : 0];
      own = joined(R, own, parts[i]);
    }
  }

  /// Lanes of a quad share a row, every fourth one a column, all of a warp everything. By whole warps. Of a row the
  /// first is then that of column `own_column`.
  template <Reduction R, InputShape Shape>
  CLEAVE_DEVICE void join_lanes() {
    if constexpr (Shape == InputShape::row) {
      join_columns<R, kColumns, 16>();
    } else {
      constexpr uint32_t kEnd = Shape == InputShape::column ? 4 : 32;
      CLEAVE_UNROLL
      for (uint32_t distance = 1; distance < kEnd; distance *= 2) {
        CLEAVE_UNROLL
        for (uint32_t i = 0; i < (Shape == InputShape::scalar ? 1 : 2); ++i)
          line[i] = joined_with(R, line[i], distance);
      }
    }
  }

  /// Which of kColumns a lane has, and whether it is the first that has it.
  CLEAVE_DEVICE static uint32_t own_column() { return threadIdx.x % 32 / kSharers; }
  CLEAVE_DEVICE static bool is_first() { return threadIdx.x % kSharers < 4; }

 private:
  static constexpr uint32_t kSharers = 32 / kColumns;  // lanes, of which every fourth has a column of its own

  CLEAVE_DEVICE static float joined_with(Reduction reduction, float own, uint32_t distance) {
    return joined(reduction, own, __shfl_xor_sync(0xffffffffu, own, distance));
  }

  /// Of `Count` columns each of two lanes keeps half, and gives the other half away; of one, both have all.
  template <Reduction R, uint32_t Count, uint32_t Distance>
  CLEAVE_DEVICE void join_columns() {
    constexpr uint32_t kHalf = Count / 2;
    const bool upper = (threadIdx.x & Distance) != 0;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kHalf; ++i) {
      const float given = upper ? line[i] : line[i + kHalf], kept = upper ? line[i + kHalf] : line[i];
      line[i] = joined(R, kept, __shfl_xor_sync(0xffffffffu, given, Distance));
    }
    if constexpr (kHalf == 0) line[0] = joined_with(R, line[0], Distance);
    if constexpr (Distance > 4) join_columns<R, max_of(kHalf, 1u), Distance / 2>();
  }
};

/// The partial results of the unit that `block` ends, of output I. `rows_of_d`: of the block's two rows. Units outside
/// D have theirs, too, so that those of classes, whose rows are counted tile by tile, follow each other.
template <GemmConfig C, uint32_t I>
CLEAVE_DEVICE void store_unit(const GemmParams& p, const Tile<C>& tile, uint32_t block, const uint32_t (&rows_of_d)[2],
                              const UnitParts<C>& parts) {
  constexpr InputShape kShape = C.epilogue.function.output(I).shape;
  uint32_t row = tile.row(block);
  const uint32_t col = tile.col(block), lane = threadIdx.x % 32;
  const FunctionOperand& to = p.epilogue.outputs[I];
  float* const partials = static_cast<float*>(to.data) + tile.batch * to.batch_stride;
  if constexpr (kShape == InputShape::column) {
    if (lane % 4 != 0) return;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 2; ++i)
      if (row + i * 8 < tile.m_end(p.size))
        partials[col / reduced_columns(C) * to.stride + rows_of_d[i]] = parts.line[i];
    return;
  }
  if constexpr (C.schedule.grouping == Grouping::classes) row += tile.conv_class->tiles_before * group_step(C);
  const int64_t unit = row / kReducedRows * to.stride;
  if constexpr (kShape == InputShape::row) {
    const uint32_t last = block % Fragment<C>::kColBlocks % kBlocksJoined<C>, own = UnitParts<C>::own_column();
    const uint32_t column = col + own / 2 * 8 + own % 2 - last * 8;
    if (UnitParts<C>::is_first() && own / 2 <= last && column < tile.n_end(p.size))
      partials[unit + column] = parts.line[0];
  } else {
    if (lane == 0) partials[unit + col / reduced_columns(C)] = parts.line[0];
  }
}

}  // namespace cleave

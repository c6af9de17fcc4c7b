// C through shared memory: which kernels take it so, and how it lies there.
#pragma once

#include "cleave/config/gemm_config.h"

namespace cleave {

/// Elements of the largest tile whose C leaves room for stages of operands.
inline constexpr uint32_t kMostStagedC = 24576;

/// Whether a tile's C comes by bulk copies, row by row, while the tile is multiplied: in groups of K, whose products
/// are often little work beside what they are added to.
CLEAVE_HD constexpr bool stages_c(const GemmConfig& c) {
  const bool whole = c.schedule.split == SplitKMode::none && !c.schedule.in_turn && !c.warps.pingpong;
  return c.epilogue.c_words && !c.store.adds && has_wgmma(c.family) && c.schedule.grouping == Grouping::k && whole &&
         c.tile.m * c.tile.n <= kMostStagedC;
}

/// Bytes from one of its rows to the next, with which 64 bits of the same columns of four rows lie in all banks.
CLEAVE_HD constexpr uint32_t staged_c_pitch(const GemmConfig& c) {
  return c.tile.n * 4 + 32;
}

}  // namespace cleave

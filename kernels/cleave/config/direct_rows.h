// Convolutions of one tap, and their data gradients, of few channels (direct/rows.h): a product of a tall matrix whose
// rows, the pixels, go straight from memory to registers and back, and of filters that stay in shared memory.
//
// Pixels are mma.sync's columns: a thread's 16 bytes of one are then registers as two steps of K want them, which is
// dealt to the steps so. A thread makes some neighbouring channels of a pixel of D, since the filters' rows are dealt
// to its blocks in an order of their own, too.
#pragma once

#include "cleave/config/direct_work.h"
#include "cleave/config/gemm_config.h"

namespace cleave {

inline constexpr uint32_t kRowsDepth = 32;  // of K, in a thread's 8 channels and its three neighbours'

/// Channels of D of a part, of which a thread has `direct.vector`; blocks of mma.sync's 16 that those are.
CLEAVE_HD constexpr uint32_t rows_part(const GemmConfig& c) {
  return c.direct.vector * 8;
}
CLEAVE_HD constexpr uint32_t rows_blocks(const GemmConfig& c) {
  return c.direct.vector / 2;
}

/// Parts of the channels, pieces of K, and pixels of a warp, in eights.
CLEAVE_HD constexpr uint32_t rows_parts(const GemmConfig& c) {
  return ceil_div(c.tile.n, rows_part(c));
}
CLEAVE_HD constexpr uint32_t rows_depths(const GemmConfig& c) {
  return ceil_div(c.tile.k, kRowsDepth);
}
CLEAVE_HD constexpr uint32_t rows_eights(const GemmConfig& c) {
  return c.tile.m / (kDirectThreads / 32) / 8;
}

/// Filters, as a warp's registers for a block and a piece of K want them, step by step.
CLEAVE_HD constexpr uint32_t rows_bytes(const GemmConfig& c) {
  return rows_parts(c) * rows_part(c) * rows_depths(c) * kRowsDepth * 2;
}

}  // namespace cleave

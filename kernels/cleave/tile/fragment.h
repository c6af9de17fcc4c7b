// Which elements of the tile a math thread's accumulators are.
//
// Both kernels hold a tile as blocks of 16 rows x 8 columns, four accumulators of each block per
// thread: mma.sync and WGMMA spread a block over a warp in the same way. So a fragment is a list of
// blocks, and everything after the mainloop (split-K, stores) is written once:
//
//   accumulator 4 * block + i  ->  row(block) + 8 * (i / 2),  column(block) + i % 2
//
// Where a gate's rows and an up's make D's (gates_rows), a block is 8 rows of D: its accumulators 0 and 1 are the
// gate's sums of two columns, 2 and 3 the up's.
#pragma once

#include "cleave/config/gemm_config.h"
#include "cleave/config/output.h"
#include "cleave/config/threads.h"

namespace cleave {

template <GemmConfig C>
struct Fragment {
  static constexpr bool kWgmma = has_wgmma(C.family);
  static constexpr uint32_t kBlocks = accumulators_per_thread(C) / 4;
  // Rows and columns that one warp (portable) or one warpgroup (WGMMA) owns.
  static constexpr uint32_t kRows = kWgmma ? C.tile.m / (math_threads(C) / 128) : C.tile.m / C.warps.m;
  static constexpr uint32_t kCols = kWgmma ? C.tile.n : C.tile.n / C.warps.n;
  static constexpr uint32_t kColBlocks = kCols / 8;
  // From a block of the gate projection to that of the up projection.
  static constexpr uint32_t kUpBlocks = gated(C) ? kColBlocks / 2 : 0;
  // D's rows of a block that a thread has, and elements.
  static constexpr uint32_t kLines = gates_rows(C) ? 1 : 2, kElements = 2 * kLines;
  // From one block to the one below it: a warpgroup's four warps take 16 rows each of every 64; a
  // lone warp's blocks follow each other.
  static constexpr uint32_t kRowStep = (kWgmma ? 32 : 8) * kLines;

  uint32_t row0, col0;  // of this thread's accumulator 0

  CLEAVE_HD explicit Fragment(uint32_t math_thread) {
    const uint32_t warp = math_thread / 32, lane = math_thread % 32;
    if constexpr (kWgmma) {
      row0 = warp / 4 * (kRows / 2 * kLines) + warp % 4 * (8 * kLines) + lane / 4;
      col0 = lane % 4 * 2;
    } else {
      row0 = warp / C.warps.n * (kRows / 2 * kLines) + lane / 4;
      col0 = warp % C.warps.n * kCols + lane % 4 * 2;
    }
  }

  CLEAVE_HD uint32_t row(uint32_t block) const { return row0 + block / kColBlocks * kRowStep; }
  CLEAVE_HD uint32_t col(uint32_t block) const { return col0 + block % kColBlocks * 8; }

  /// Whether the block's values belong to D; those of the up projection go into the gate's.
  CLEAVE_HD static constexpr bool stored(uint32_t block) { return !gated(C) || block % kColBlocks < kUpBlocks; }
};

}  // namespace cleave

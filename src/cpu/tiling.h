// How the CPU backend cuts a problem: tiles, workers and workspace. It follows from the problem,
// the mode and the slices alone, never from the number of threads, so that results are bitwise the
// same however many there are.
#pragma once

#include <cstddef>

#include "cleave/gemm.h"
#include "cleave/schedule/schedule.h"

namespace cleave::cpu {

// A packed tile of A or B and the tile's sums stay in a core's second-level cache.
inline constexpr uint32_t kMaxTileM = 120;  // whole micro-tiles
inline constexpr uint32_t kMaxTileN = 128;
inline constexpr uint32_t kMaxTileK = 256;

/// Workers of stream_k: what the tiles that do not fill a whole round are cut into.
inline constexpr uint32_t kStreamWorkers = 16;

inline constexpr size_t kSumSize = 4;  ///< bytes of a sum: float32 or int32

struct Tiling {
  SplitKMode mode = SplitKMode::none;
  uint32_t tile_m = 1, tile_n = 1, tile_k = 1;
  Schedule schedule;

  /// Walkers of the schedule. A thread works for many, one after the other; a worker is bound to no
  /// thread.
  uint32_t workers = 0;

  size_t counters = 0;  ///< of the workspace: serial, one per tile; stream_k, one per worker
  size_t partials = 0;  ///< of the workspace: tiles of sums, 4 bytes each

  uint32_t tile_elements() const { return tile_m * tile_n; }
  size_t counter_size() const { return counters * sizeof(uint32_t); }
  size_t partials_offset() const { return round_up(counter_size(), size_t(16)); }
  size_t workspace_size() const {
    return partials == 0 ? 0 : partials_offset() + partials * tile_elements() * kSumSize;
  }
};

/// `mode` is not automatic and `slices` is at least 1; stream_k ignores `slices`.
Tiling make_tiling(const GemmProblem& problem, SplitKMode mode, uint32_t slices);

}  // namespace cleave::cpu

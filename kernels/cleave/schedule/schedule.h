// The schedule: which work units a worker processes, in order.
//
// A *worker* is one block, or one cluster of blocks that load together. Every role of a block
// (producer, consumers) walks its own copy of the schedule, so the roles need no communication to
// agree on the work. The same code runs on the host, where the CPU backend executes it and the
// tests prove that every (tile, k block) is done exactly once.
//
//   none              one unit per tile, all of K
//   serial, parallel  `groups` units per tile: u = group * tiles + tile, so that workers in step
//                     read the same range of K and share it in L2. A group is one slice, or, if the
//                     worker is a cluster that splits K among its `ranks`, as many slices
//   cluster           the same with one group: the ranks of one cluster hold all slices of a tile
//                     Slices interleave: slice s takes the k blocks s, s + slices, ... so that all
//                     slices in flight read one window of K together, whole DRAM pages instead of a
//                     line here and there
//   stream_k          the first `stream_tiles` tiles form one line of k blocks that the workers cut
//                     into equal parts; the remaining tiles are whole and follow. (Osama et al.,
//                     "Stream-K", PPoPP 2023.)
//
// Why the waits inside a kernel cannot deadlock: all workers are resident, every worker takes its
// units in increasing order, and a unit only waits for units of a lower number (serial), for units
// that are first in their worker's list (stream_k), or after the worker has finished all its units
// (parallel's reductions).
#pragma once

#include "cleave/core/enums.h"
#include "cleave/schedule/raster.h"

namespace cleave {

struct WorkUnit {
  uint32_t m = 0, n = 0, batch = 0;  // the tile's place, in tiles
  uint32_t tile = 0;                 // its number: index of its counter and partials
  uint32_t k_first = 0, k_step = 1;  // its k blocks: first, first + step, ...
  uint32_t k_count = 0;
  uint32_t slice = 0;         // which share of K this is
  uint32_t contributors = 0;  // stream_k: later workers that hold the rest of this tile

  CLEAVE_HD constexpr uint32_t k_block(uint32_t i) const { return k_first + i * k_step; }
};

/// `total` things dealt to `count` takers in order: shares differ by at most one, the larger ones
/// first.
struct Shares {
  uint32_t base = 0, extra = 0;
  Shares() = default;
  CLEAVE_HD constexpr Shares(uint32_t total, uint32_t count)
      : base(total / count), extra(total % count) {}
  CLEAVE_HD constexpr uint32_t begin(uint32_t taker) const {
    return taker * base + min_of(taker, extra);
  }
  CLEAVE_HD constexpr uint32_t count(uint32_t taker) const {
    return base + (taker < extra ? 1 : 0);
  }
};

/// The fixed part: made by the planner, passed to the kernel by value.
struct Schedule {
  Raster raster;
  uint32_t tiles = 0;     // all tiles of all batch entries
  uint32_t k_blocks = 0;  // per tile
  uint32_t slices = 1;    // of a tile: groups * ranks
  uint32_t ranks = 1;     // slices that one worker, a cluster of blocks, takes at a time
  uint32_t groups = 1;
  FastDivmod tiles_divmod;
  Shares slice_shares;         // k blocks of a tile, dealt to its slices
  uint32_t stream_tiles = 0;   // stream_k: tiles that are cut
  Shares worker_shares;        // stream_k: k blocks of the line, dealt to the workers
  FastDivmod k_blocks_divmod;  // stream_k
  uint32_t reduce_chunks = 1;  // parallel: reduction units per tile
  FastDivmod reduce_chunks_divmod;

  CLEAVE_HD constexpr uint32_t units() const { return tiles * groups; }
};

template <SplitKMode Mode>
class Walk {
 public:
  /// `rank`: which of the worker's slices this block takes.
  CLEAVE_HD constexpr Walk(const Schedule& schedule, uint32_t worker, uint32_t workers,
                           uint32_t rank = 0)
      : s_(schedule), worker_(worker), workers_(workers), rank_(rank), next_(worker) {
    if constexpr (Mode == SplitKMode::stream_k) {
      position_ = s_.worker_shares.begin(worker);
      end_ = s_.worker_shares.begin(worker + 1);
      next_ = s_.stream_tiles + worker;
    }
  }

  /// The worker's next unit; false when it has none left.
  CLEAVE_HD constexpr bool next(WorkUnit& unit) {
    if constexpr (Mode == SplitKMode::stream_k) {
      if (position_ < end_) return next_stream(unit);
    }
    if (next_ >= s_.units()) return false;
    unit.tile = next_;
    unit.slice = 0;
    if constexpr (Mode != SplitKMode::none && Mode != SplitKMode::stream_k) {
      uint32_t group = 0;
      s_.tiles_divmod.divmod(next_, group, unit.tile);
      unit.slice = group * s_.ranks + rank_;
    }
    next_ += workers_;
    unit.k_first = unit.slice;
    unit.k_step = s_.slices;
    unit.k_count = s_.slice_shares.count(unit.slice);
    unit.contributors = 0;
    s_.raster.locate(unit.tile, unit.m, unit.n, unit.batch);
    return true;
  }

 private:
  CLEAVE_HD constexpr bool next_stream(WorkUnit& unit) {
    uint32_t offset = 0;
    s_.k_blocks_divmod.divmod(position_, unit.tile, offset);
    const uint32_t tile_begin = position_ - offset;
    const uint32_t tile_end = tile_begin + s_.k_blocks;
    unit.k_first = offset;
    unit.k_step = 1;
    unit.k_count = min_of(end_, tile_end) - position_;
    unit.slice = offset == 0 ? 0 : 1;  // 0 owns the tile, others contribute to it
    position_ += unit.k_count;
    unit.contributors = 0;
    if (offset == 0 && unit.k_count < s_.k_blocks) {
      // The owner collects from the workers after it, up to the one that holds the tile's last k
      // block.
      while (s_.worker_shares.begin(worker_ + unit.contributors + 1) < tile_end)
        ++unit.contributors;
    }
    s_.raster.locate(unit.tile, unit.m, unit.n, unit.batch);
    return true;
  }

  const Schedule& s_;
  uint32_t worker_, workers_, rank_;
  uint32_t next_;
  uint32_t position_ = 0, end_ = 0;  // stream_k: what is left of this worker's part of the line
};

/// Parallel split-K, second half: reduction units, dealt after all of a worker's work units.
struct ReduceUnit {
  uint32_t m = 0, n = 0, batch = 0, tile = 0;
  uint32_t chunk = 0;  // which of the tile's `reduce_chunks` shares of accumulators
};

CLEAVE_HD constexpr ReduceUnit reduce_unit(const Schedule& s, uint32_t index) {
  ReduceUnit unit;
  s.reduce_chunks_divmod.divmod(index, unit.tile, unit.chunk);
  s.raster.locate(unit.tile, unit.m, unit.n, unit.batch);
  return unit;
}

/// How the planner describes a schedule; `make_schedule` precomputes the divisions.
struct ScheduleShape {
  SplitKMode mode = SplitKMode::none;
  uint32_t tiles_m = 1, tiles_n = 1, batches = 1;
  uint32_t k_blocks = 0;
  uint32_t slices = 1;         // serial, parallel, cluster; a multiple of ranks
  uint32_t ranks = 1;          // parallel (cluster: all slices are ranks)
  uint32_t workers = 1;        // stream_k
  uint32_t stream_tiles = 0;   // stream_k
  uint32_t reduce_chunks = 1;  // parallel
  uint32_t band_width = 8;
  bool bands_along_m = false;
};

CLEAVE_HD constexpr Schedule make_schedule(const ScheduleShape& shape) {
  Schedule s;
  s.raster = Raster(shape.tiles_m, shape.tiles_n, shape.band_width, shape.bands_along_m);
  s.tiles = shape.tiles_m * shape.tiles_n * shape.batches;
  s.k_blocks = shape.k_blocks;
  const bool sliced = shape.mode == SplitKMode::serial || shape.mode == SplitKMode::parallel ||
                      shape.mode == SplitKMode::cluster;
  s.slices = sliced ? shape.slices : 1;
  s.ranks = shape.mode == SplitKMode::cluster ? s.slices : shape.ranks;
  s.groups = s.slices / s.ranks;
  s.tiles_divmod = FastDivmod(max_of(s.tiles, 1u));
  s.slice_shares = Shares(shape.k_blocks, s.slices);
  s.reduce_chunks = shape.reduce_chunks;
  s.reduce_chunks_divmod = FastDivmod(shape.reduce_chunks);
  if (shape.mode == SplitKMode::stream_k) {
    s.stream_tiles = shape.k_blocks == 0 ? 0 : shape.stream_tiles;
    s.worker_shares = Shares(s.stream_tiles * shape.k_blocks, shape.workers);
    s.k_blocks_divmod = FastDivmod(max_of(shape.k_blocks, 1u));
  }
  return s;
}

}  // namespace cleave

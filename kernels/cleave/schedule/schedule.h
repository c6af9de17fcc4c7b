// The schedule: which work units a worker processes, in order.
//
// A *worker* is one block, or one cluster of blocks that load together. Every role of a block
// (producer, consumers) walks its own copy of the schedule, so the roles need no communication to
// agree on the work. The same code runs on the host, where the CPU backend executes it and the
// tests prove that every (tile, k block) is done exactly once.
//
//   none              one unit per tile, all of K
//   serial, parallel  `bundles` units per tile: u = bundle * tiles + tile, so that workers in step
//                     read the same range of K and share it in L2. A bundle is one slice, or, if the
//                     worker is a cluster that splits K among its `ranks`, as many slices
//   cluster           the same with one bundle: the ranks of one cluster hold all slices of a tile
//                     Slices interleave: slice s takes the k blocks s, s + slices, ... so that all
//                     slices in flight read one window of K together, whole DRAM pages instead of a
//                     line here and there
//   stream_k          the first `stream_tiles` tiles form one line of k blocks that the workers cut
//                     into equal parts; the remaining tiles are whole and follow. (Osama et al.,
//                     "Stream-K", PPoPP 2023.)
//
// Where a dimension is grouped (groups.h), tiles are counted group by group. Groups of M or N have
// tiles of their own size: how many there are is known on the device alone, and the same launch
// serves any number. Groups of K have equally many tiles, but of unequal depth: a slice of a short
// one may have no k block, and stream_k cuts all of them, so that every worker multiplies equally
// much however the groups are skewed. The classes of a strided convolution (conv_classes.h) have both,
// tiles and a depth of their own, but the host knows them; a slice of a shallow one has no k block
// either, and tiles of no depth at all come last.
//
// Who waits for whom: nobody, in all modes but serial. The last to finish a part of a tile adds the
// parts up (split_k/), whoever that is, so a launch ends even if its CTAs run one after the other.
// In serial, a unit waits for units of a lower number, and every worker takes its units in
// increasing order: that ends if all workers are resident, which serial's launches ask for.
#pragma once

#include "cleave/conv/conv_classes.h"
#include "cleave/core/enums.h"
#include "cleave/schedule/groups.h"
#include "cleave/schedule/raster.h"

namespace cleave {

/// A tile of D.
struct TileSpot {
  uint32_t m = 0, n = 0, batch = 0;  // its place, in tiles; of a group: from the group's first
  uint32_t tile = 0;                 // its number: index of its counter and partials
  GroupRange range;                  // its group's; nothing where there are no groups
  uint32_t conv_class = 0;           // its class
};

struct WorkUnit : TileSpot {
  uint32_t k_first = 0, k_step = 1;  // its k blocks: first, first + step, ...
  uint32_t k_count = 0;
  uint32_t slice = 0;  // which part of the tile's K this is; the parts are added in this order
  uint32_t parts = 1;  // stream_k: how many the tile has; successive workers hold them

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
  /// Who takes the thing at `position`, which is less than the total.
  CLEAVE_HD constexpr uint32_t taker(uint32_t position) const {
    const uint32_t larger = extra * (base + 1);
    return position < larger ? position / (base + 1) : extra + (position - larger) / base;
  }
  CLEAVE_HD constexpr uint32_t count(uint32_t taker) const {
    return base + (taker < extra ? 1 : 0);
  }
};

/// The fixed part: made by the planner, passed to the kernel by value.
struct Schedule {
  Raster raster;
  uint32_t tiles = 0;         // all tiles of all batch entries; of groups of M or N: unknown
  uint32_t tiles_across = 0;  // groups of M or N: tiles of one step along the grouped dimension;
                              // of K: tiles of a group
  uint32_t k_blocks = 0;      // per tile; of groups of K: unknown
  uint32_t slices = 1;        // of a tile: bundles * ranks
  uint32_t ranks = 1;         // slices that one worker, a cluster of blocks, takes at a time
  uint32_t bundles = 1;
  FastDivmod tiles_divmod;
  Shares slice_shares;         // k blocks of a tile, dealt to its slices
  uint32_t stream_tiles = 0;   // stream_k: tiles that are cut
  Shares worker_shares;        // stream_k: k blocks of the line, dealt to the workers
  FastDivmod k_blocks_divmod;  // stream_k
};

/// Tiles that stream_k cuts: whole waves run unsplit, but for the last one, which shares the line
/// with the remainder.
CLEAVE_HD constexpr uint32_t stream_tiles(uint32_t tiles, uint32_t workers) {
  const uint32_t remainder = tiles % workers;
  return remainder == 0 ? 0 : remainder + (tiles > workers ? workers : 0);
}

namespace detail {
template <Grouping G>
struct TableOf {
  using type = GroupTable;
};
template <>
struct TableOf<Grouping::classes> {
  using type = ClassTable;
};
}  // namespace detail

/// What a schedule needs to know of groups or classes.
template <Grouping G>
using Table = typename detail::TableOf<G>::type;

/// Finds tiles by their number.
template <Grouping G>
class TileFinder {
  static constexpr bool kRagged = G == Grouping::m || G == Grouping::n;

 public:
  CLEAVE_HD constexpr TileFinder(const Schedule& schedule, const Table<G>& table)
      : s_(schedule), table_(table) {}

  CLEAVE_HD constexpr uint32_t tiles() const {
    if constexpr (kRagged) return table_.steps() * s_.tiles_across;
    return s_.tiles;
  }

  CLEAVE_HD constexpr void find(uint32_t tile, TileSpot& spot) {
    spot.tile = tile;
    if constexpr (G == Grouping::classes) {
      uint32_t in_batch = 0;
      s_.raster.per_batch.divmod(tile, spot.batch, in_batch);
      if (in_batch < table_.classes[group_].tiles_before * s_.tiles_across) group_ = 0;
      while (in_batch >= table_.tiles_until(group_) * s_.tiles_across) ++group_;
      const ConvClass& c = table_.classes[group_];
      spot.conv_class = group_;
      spot.range = {0, c.rows};
      s_.raster.locate_in_group(in_batch - c.tiles_before * s_.tiles_across, c.tiles, spot.m,
                                spot.n);
    } else if constexpr (kRagged) {
      seek(tile, s_.tiles_across);
      spot.batch = group_;
      spot.range = table_.ranges[group_];
      s_.raster.locate_in_group(tile - table_.before[group_] * s_.tiles_across,
                                table_.steps(group_), spot.m, spot.n);
    } else {
      s_.raster.locate(tile, spot.m, spot.n, spot.batch);
      if constexpr (G == Grouping::k) spot.range = table_.ranges[spot.batch];
    }
  }

  /// The group in whose part of the line `position` lies, `each` positions a step. Walks go mostly
  /// forward.
  CLEAVE_HD constexpr uint32_t seek(uint32_t position, uint32_t each) {
    if (position < table_.before[group_] * each) group_ = 0;
    while (position >= table_.before[group_ + 1] * each) ++group_;
    return group_;
  }

  /// The class in whose part of the line of k blocks `position` lies.
  CLEAVE_HD constexpr const ConvClass& seek_class(uint32_t position) {
    if (position < table_.classes[group_].line_before * s_.tiles_across) group_ = 0;
    while (position >= table_.line_until(group_) * s_.tiles_across) ++group_;
    return table_.classes[group_];
  }

  CLEAVE_HD constexpr const Table<G>& table() const { return table_; }

 private:
  const Schedule& s_;
  Table<G> table_;
  uint32_t group_ = 0;
};

template <SplitKMode Mode, Grouping G = Grouping::none>
class Walk {
 public:
  /// `rank`: which of the worker's slices this block takes. `table`: of the groups or classes, if
  /// there are any.
  CLEAVE_HD constexpr Walk(const Schedule& schedule, uint32_t worker, uint32_t workers,
                           uint32_t rank = 0, const Table<G>& table = {})
      : s_(schedule),
        finder_(schedule, table),
        worker_(worker),
        workers_(workers),
        rank_(rank),
        next_(worker),
        grouped_tiles_(finder_.tiles()) {
    if constexpr (Mode == SplitKMode::stream_k) {
      uint32_t streamed = s_.stream_tiles;
      if constexpr (G == Grouping::k) {
        streamed = s_.tiles;
        grouped_shares_ = Shares(table.steps() * s_.tiles_across, workers);
      } else if constexpr (G == Grouping::m || G == Grouping::n) {
        streamed = s_.k_blocks == 0 ? 0 : stream_tiles(grouped_tiles_, workers);
        grouped_shares_ = Shares(streamed * s_.k_blocks, workers);
      }
      position_ = shares().begin(worker);
      end_ = shares().begin(worker + 1);
      next_ = streamed + worker;
    }
  }

  /// The worker's next unit; false when it has none left.
  CLEAVE_HD constexpr bool next(WorkUnit& unit) {
    if constexpr (Mode == SplitKMode::stream_k) {
      if (position_ < end_) return next_stream(unit);
    }
    if (next_ >= tiles() * s_.bundles) return false;
    uint32_t tile = next_;
    unit.slice = 0;
    unit.parts = 1;
    if constexpr (is_sliced(Mode)) {
      uint32_t bundle = 0;
      if constexpr (G == Grouping::m || G == Grouping::n) {
        bundle = next_ / tiles();
        tile = next_ - bundle * tiles();
      } else {
        s_.tiles_divmod.divmod(next_, bundle, tile);
      }
      unit.slice = bundle * s_.ranks + rank_;
    }
    next_ += workers_;
    finder_.find(tile, unit);
    unit.k_first = unit.slice;
    unit.k_step = s_.slices;
    unit.k_count = s_.slice_shares.count(unit.slice);
    if constexpr (G == Grouping::k) {
      const uint32_t k_blocks = finder_.table().steps(unit.batch);
      unit.k_count =
          Mode == SplitKMode::none ? k_blocks : Shares(k_blocks, s_.slices).count(unit.slice);
    } else if constexpr (G == Grouping::classes) {
      const uint32_t depth = finder_.table().classes[unit.conv_class].depth;
      unit.k_count = is_sliced(Mode) ? Shares(depth, s_.slices).count(unit.slice) : depth;
    }
    return true;
  }

  /// True if `next` would give no more.
  CLEAVE_HD constexpr bool finished() const {
    return (Mode != SplitKMode::stream_k || position_ >= end_) && next_ >= tiles() * s_.bundles;
  }

 private:
  CLEAVE_HD constexpr bool next_stream(WorkUnit& unit) {
    uint32_t tile = 0, offset = 0, k_blocks = s_.k_blocks;
    if constexpr (G == Grouping::k) {
      const uint32_t group = finder_.seek(position_, s_.tiles_across);
      k_blocks = finder_.table().steps(group);
      const uint32_t in_group = position_ - finder_.table().before[group] * s_.tiles_across;
      const uint32_t in_group_tile = in_group / k_blocks;
      offset = in_group - in_group_tile * k_blocks;
      tile = group * s_.tiles_across + in_group_tile;
    } else if constexpr (G == Grouping::classes) {
      const ConvClass& c = finder_.seek_class(position_);
      k_blocks = c.depth;
      const uint32_t in_class = position_ - c.line_before * s_.tiles_across;
      const uint32_t in_class_tile = in_class / k_blocks;
      offset = in_class - in_class_tile * k_blocks;
      tile = c.tiles_before * s_.tiles_across + in_class_tile;
    } else {
      s_.k_blocks_divmod.divmod(position_, tile, offset);
    }
    const uint32_t tile_begin = position_ - offset;
    const uint32_t tile_end = tile_begin + k_blocks;
    unit.k_first = offset;
    unit.k_step = 1;
    unit.k_count = min_of(end_, tile_end) - position_;
    position_ += unit.k_count;
    unit.slice = 0;
    unit.parts = 1;
    if (unit.k_count < k_blocks) {
      const uint32_t first = shares().taker(tile_begin);
      unit.slice = worker_ - first;
      unit.parts = shares().taker(tile_end - 1) - first + 1;
    }
    finder_.find(tile, unit);
    return true;
  }

  // What the host knows is read from the schedule each time: kept in registers, it makes the largest
  // tiles spill.
  CLEAVE_HD constexpr uint32_t tiles() const {
    return G == Grouping::m || G == Grouping::n ? grouped_tiles_ : s_.tiles;
  }
  CLEAVE_HD constexpr Shares shares() const {
    return G == Grouping::none || G == Grouping::classes ? s_.worker_shares : grouped_shares_;
  }

  const Schedule& s_;
  TileFinder<G> finder_;
  uint32_t worker_, workers_, rank_;
  uint32_t next_;
  uint32_t position_ = 0, end_ = 0;  // stream_k: what is left of this worker's part of the line
  uint32_t grouped_tiles_;           // groups of M or N: how many there are
  Shares grouped_shares_;            // stream_k of groups
};

/// How the planner describes a schedule; `make_schedule` precomputes the divisions.
struct ScheduleShape {
  SplitKMode mode = SplitKMode::none;
  Grouping grouping = Grouping::none;
  uint32_t tiles_m = 1, tiles_n = 1, batches = 1;  // of groups of M (N) tiles_m (tiles_n) is not
                                                   // used
  uint32_t k_blocks = 0;                           // not used of groups of K and of classes
  uint32_t line =
      0;  // classes: k blocks of all tiles together; tiles_m counts those of all classes
  uint32_t slices = 1;        // serial, parallel, cluster; a multiple of ranks
  uint32_t ranks = 1;         // parallel (cluster: all slices are ranks)
  uint32_t workers = 1;       // stream_k
  uint32_t stream_tiles = 0;  // stream_k, not used of groups; of classes: all with k blocks
  uint32_t band_width = 8;
  bool bands_along_m = false;  // not used of groups of M and N, whose bands cut the other dimension
};

CLEAVE_HD constexpr Schedule make_schedule(const ScheduleShape& shape) {
  Schedule s;
  const bool classes = shape.grouping == Grouping::classes;
  const bool by_m = shape.grouping == Grouping::m || classes, by_n = shape.grouping == Grouping::n;
  s.raster = Raster(by_m ? 1 : shape.tiles_m, by_n ? 1 : shape.tiles_n, shape.band_width,
                    by_n || (!by_m && shape.bands_along_m));
  if (classes) s.raster.per_batch = FastDivmod(max_of(shape.tiles_m * shape.tiles_n, 1u));
  s.tiles_across = by_m ? shape.tiles_n : by_n ? shape.tiles_m : shape.tiles_m * shape.tiles_n;
  s.tiles = shape.tiles_m * shape.tiles_n * shape.batches;
  s.k_blocks = shape.k_blocks;
  s.slices = is_sliced(shape.mode) ? shape.slices : 1;
  s.ranks = shape.mode == SplitKMode::cluster ? s.slices : shape.ranks;
  s.bundles = s.slices / s.ranks;
  s.tiles_divmod = FastDivmod(max_of(s.tiles, 1u));
  s.slice_shares = Shares(shape.k_blocks, s.slices);
  if (shape.mode == SplitKMode::stream_k) {
    s.stream_tiles = shape.k_blocks == 0 && !classes ? 0 : shape.stream_tiles;
    s.worker_shares = Shares(classes ? shape.line : s.stream_tiles * shape.k_blocks, shape.workers);
    s.k_blocks_divmod = FastDivmod(max_of(shape.k_blocks, 1u));
  }
  return s;
}

}  // namespace cleave

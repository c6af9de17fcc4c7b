// The schedule: which work tiles a persistent cluster of CTAs computes, in order.
//
// A cluster is a group of CTAs that load together, or a single CTA where a launch has no clusters. Every role of a CTA
// (producer, consumers) has a TileScheduler of its own, so that they agree on the work without communicating. The same
// code runs on the host, where the CPU backend executes it and tests prove that every (tile, k block) is done exactly
// once.
//
//   none              one work tile per tile, with all of K; in turn: one per slice, all of a tile's in one cluster
//   serial, parallel  `clusters_per_tile` work tiles per tile: u = split * tiles + tile, so that clusters
//                     in step read the same range of K and share it in L2. A split is one slice or,
//                     where K is split among the CTAs of a cluster, `slices_per_cluster` of them
//   cluster           the same with one split: the CTAs of one cluster hold all slices of a tile
//                     Slices interleave: slice s takes the k blocks s, s + slices, ... so that all
//                     slices in flight read one window of K together, whole DRAM pages instead of a
//                     line here and there
//   stream_k          the first `stream_tiles` tiles form one line of k blocks that the clusters cut
//                     into equal parts; the remaining tiles are whole and follow. (Osama et al.,
//                     "Stream-K", PPoPP 2023.) Groups of M or N: waves are whole, and the tiles of the last one,
//                     if it is incomplete, are cut into as many parts as there are clusters for
//
// Where a dimension is grouped (groups.h), tiles are counted group by group.
// - Groups of M or N differ in their number of tiles. Only the device knows it, and one launch serves any number.
//   stream_k's parts interleave there as slices do: groups have large weights, which tiles in step read but once.
// - Groups of K have equally many tiles, but differ in depth. A slice of a short group may have no k block. stream_k
//   cuts all tiles, so that every cluster multiplies equally much however skewed the groups are.
// - The classes of a strided convolution (conv_classes.h) differ in both, but the host knows them. A slice of a shallow
//   class may have no k block, and tiles without any depth come last.
//
// No CTA waits for another, except in serial mode. Whoever finishes the last part of a tile adds its parts up
// (split_k/), so a launch ends even if its CTAs run one after the other. In serial mode a work tile waits for work
// tiles of lower number, and every cluster takes its own in increasing order: that ends if all clusters are resident,
// which serial launches demand.
#pragma once

#include "cleave/conv/conv_classes.h"
#include "cleave/core/either.h"
#include "cleave/core/enums.h"
#include "cleave/schedule/groups.h"
#include "cleave/schedule/raster.h"

namespace cleave {

/// A tile of D.
struct TileCoord {
  uint32_t m = 0, n = 0, batch = 0;  // its place, in tiles; in a group: from the group's first
  uint32_t tile = 0;                 // its number, which indexes counters and partials
  GroupRange range;                  // its group's; empty where there are no groups
  uint32_t conv_class = 0;           // its class
};

struct WorkTile : TileCoord {
  uint32_t k_first = 0, k_step = 1;  // its k blocks: first, first + step, ...
  uint32_t k_count = 0;
  uint32_t slice = 0;  // which part of the tile's K this is; the parts are added in this order
  uint32_t parts = 1;  // stream_k: how many the tile has; successive clusters hold them

  CLEAVE_HD constexpr uint32_t k_block(uint32_t i) const { return k_first + i * k_step; }
};

/// Divides `total` items into `count` parts, in order, whose sizes differ by at most one, larger parts first.
struct EvenPartition {
  uint32_t base = 0, extra = 0;
  EvenPartition() = default;
  CLEAVE_HD constexpr EvenPartition(uint32_t total, uint32_t count) : base(total / count), extra(total % count) {}
  CLEAVE_HD constexpr uint32_t begin(uint32_t part) const { return part * base + min_of(part, extra); }
  /// The part that has the item at `position`, which is less than the total.
  CLEAVE_HD constexpr uint32_t part(uint32_t position) const {
    const uint32_t larger = extra * (base + 1);
    return position < larger ? position / (base + 1) : extra + (position - larger) / base;
  }
  CLEAVE_HD constexpr uint32_t count(uint32_t part) const { return base + (part < extra ? 1 : 0); }
};

/// The constants of a schedule: computed by the planner, passed to the kernel by value.
struct Schedule {
  Raster raster;
  uint32_t tiles = 0;               // all tiles of all batch entries; of groups of M or N: unknown
  uint32_t tiles_across = 0;        // groups of M or N: tiles of one step along the grouped dimension;
                                    // of K: tiles of a group
  uint32_t k_blocks = 0;            // per tile; of groups of K: unknown
  uint32_t slices = 1;              // of a tile: clusters_per_tile * slices_per_cluster
  uint32_t slices_per_cluster = 1;  // that the CTAs of one cluster take, or one CTA in turn
  uint32_t clusters_per_tile = 1;
  FastDivmod tiles_divmod;
  EvenPartition slice_partition;   // k blocks of a tile, in its slices
  uint32_t stream_tiles = 0;       // stream_k: tiles that are cut
  EvenPartition stream_partition;  // stream_k: k blocks of the line, of each cluster
  FastDivmod k_blocks_divmod;      // stream_k
};

/// The number of tiles that stream_k cuts: the remainder after whole waves, together with the last whole wave. The
/// other waves run unsplit.
CLEAVE_HD constexpr uint32_t stream_tiles(uint32_t tiles, uint32_t clusters) {
  const uint32_t remainder = tiles % clusters;
  return remainder == 0 ? 0 : remainder + (tiles > clusters ? clusters : 0);
}

/// stream_k of groups of M or N: how many parts a tile of the last wave has, which is incomplete with its `tail` tiles.
/// Fewer, where another part took longer to add up than it saves.
CLEAVE_HD constexpr uint32_t tail_parts(uint32_t tail, uint32_t clusters, uint32_t k_blocks) {
  constexpr uint32_t kMost = 8, kLeastBlocks = 8;
  if (tail == 0) return 1;
  return max_of(min_of(clusters / tail, min_of(k_blocks / kLeastBlocks, kMost)), 1u);
}

/// What a schedule reads of groups or classes.
template <Grouping G>
using Table = Either<G == Grouping::classes, ClassTable, GroupTable>;

/// Finds tiles by their number.
template <Grouping G>
class TileFinder {
  static constexpr bool kRagged = G == Grouping::m || G == Grouping::n;

 public:
  CLEAVE_HD constexpr TileFinder(const Schedule& schedule, const Table<G>& table) : s_(schedule), table_(table) {
    if constexpr (kRagged) group_ = table.first_group();
  }

  CLEAVE_HD constexpr uint32_t tiles() const {
    if constexpr (kRagged) return table_.steps() * s_.tiles_across;
    return s_.tiles;
  }

  CLEAVE_HD constexpr void find(uint32_t tile, TileCoord& coord) {
    coord.tile = tile;
    if constexpr (G == Grouping::classes) {
      uint32_t in_batch = 0;
      s_.raster.per_batch.divmod(tile, coord.batch, in_batch);
      if (in_batch < table_.classes[group_].tiles_before * s_.tiles_across) group_ = 0;
      while (in_batch >= table_.tiles_until(group_) * s_.tiles_across) ++group_;
      const ConvClass& c = table_.classes[group_];
      coord.conv_class = group_;
      coord.range = {0, c.rows};
      s_.raster.locate_in_group(in_batch - c.tiles_before * s_.tiles_across, c.tiles, coord.m, coord.n);
    } else if constexpr (kRagged) {
      const GroupRange steps = seek(tile, s_.tiles_across);
      coord.batch = group_;
      coord.range = table_.entries[group_].range;
      s_.raster.locate_in_group(tile - steps.begin * s_.tiles_across, steps.size(), coord.m, coord.n);
    } else {
      s_.raster.locate(tile, coord.m, coord.n, coord.batch);
      if constexpr (G == Grouping::k) coord.range = table_.entries[coord.batch].range;
    }
  }

  /// Goes to the group in whose part of the line `position` lies, `each` positions a step; that part. Walks go mostly
  /// forward.
  CLEAVE_HD constexpr GroupRange seek(uint32_t position, uint32_t each) {
    uint32_t begin = table_.entries[group_].steps.begin, end = table_.entries[group_].steps.end;
    if (position < begin * each) {  // anew, from before the first one: no address depends on it
      begin = end = 0;
      group_ = ~0u;
    }
    while (position >= end * each) {
      begin = end;
      end = table_.entries[++group_].steps.end;
    }
    return {begin, end};
  }

  /// The group that `seek` went to.
  CLEAVE_HD constexpr uint32_t group() const { return group_; }

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

/// InTurn: the work tiles of a tile's `slices_per_cluster` slices follow each other.
template <SplitKMode Mode, Grouping G = Grouping::none, bool InTurn = false>
class TileScheduler {
  static constexpr bool kCutsTail = Mode == SplitKMode::stream_k && (G == Grouping::m || G == Grouping::n);
  static constexpr bool kSlices = is_sliced(Mode) || InTurn;

 public:
  /// `rank`: which of the cluster's slices this CTA takes. `table`: of the groups or classes, if
  /// there are any.
  CLEAVE_HD constexpr TileScheduler(const Schedule& schedule, uint32_t cluster, uint32_t clusters, uint32_t rank = 0,
                                    const Table<G>& table = {})
      : s_(schedule),
        finder_(schedule, table),
        cluster_(cluster),
        clusters_(clusters),
        rank_(rank),
        next_(cluster),
        grouped_tiles_(finder_.tiles()) {
    if constexpr (kCutsTail) {
      const uint32_t tail = grouped_tiles_ % clusters;
      whole_tiles_ = grouped_tiles_ - tail;
      tail_parts_ = tail_parts(tail, clusters, s_.k_blocks);
    } else if constexpr (Mode == SplitKMode::stream_k) {
      uint32_t streamed = s_.stream_tiles;
      if constexpr (G == Grouping::k) {
        streamed = s_.tiles;
        grouped_partition_ = EvenPartition(table.steps() * s_.tiles_across, clusters);
      }
      position_ = partition().begin(cluster);
      end_ = partition().begin(cluster + 1);
      next_ = streamed + cluster;
    }
  }

  /// The cluster's next work tile; false when it has none left.
  CLEAVE_HD constexpr bool next(WorkTile& work) {
    if constexpr (kCutsTail) return next_whole_or_part(work);
    if constexpr (Mode == SplitKMode::stream_k) {
      if (position_ < end_) return next_stream(work);
    }
    if (next_ >= units()) return false;
    uint32_t tile = next_;
    work.slice = 0;
    work.parts = 1;
    if constexpr (is_sliced(Mode)) {
      uint32_t split = 0;
      if constexpr (G == Grouping::m || G == Grouping::n) {
        split = next_ / tiles();
        tile = next_ - split * tiles();
      } else {
        s_.tiles_divmod.divmod(next_, split, tile);
      }
      work.slice = split * s_.slices_per_cluster + rank_;
    }
    if constexpr (InTurn) work.slice += turn_;
    if (!InTurn || ++turn_ == s_.slices_per_cluster) {
      turn_ = 0;
      next_ += clusters_;
    }
    finder_.find(tile, work);
    if constexpr (kSlices) {
      work.k_first = work.slice;
      work.k_step = s_.slices;
      work.k_count = s_.slice_partition.count(work.slice);
    } else {
      work.k_first = 0;
      work.k_step = 1;
      work.k_count = s_.k_blocks;
    }
    if constexpr (G == Grouping::k) {
      const uint32_t k_blocks = finder_.table().entries[work.batch].steps.size();
      work.k_count = Mode == SplitKMode::none ? k_blocks : EvenPartition(k_blocks, s_.slices).count(work.slice);
    } else if constexpr (G == Grouping::classes) {
      const uint32_t k_blocks = finder_.table().classes[work.conv_class].k_blocks;
      work.k_count = is_sliced(Mode) ? EvenPartition(k_blocks, s_.slices).count(work.slice) : k_blocks;
    }
    return true;
  }

  /// Whether `next` would return false.
  CLEAVE_HD constexpr bool finished() const {
    if constexpr (kCutsTail) return next_ >= whole_tiles_ + (grouped_tiles_ - whole_tiles_) * tail_parts_;
    return (Mode != SplitKMode::stream_k || position_ >= end_) && next_ >= units();
  }

 private:
  CLEAVE_HD constexpr bool next_whole_or_part(WorkTile& work) {
    if (finished()) return false;
    uint32_t tile = next_;
    work.slice = 0;
    work.parts = 1;
    if (next_ >= whole_tiles_) {
      work.parts = tail_parts_;
      tile = whole_tiles_ + cluster_ / tail_parts_;
      work.slice = cluster_ % tail_parts_;
    }
    next_ += clusters_;
    work.k_first = work.slice;
    work.k_step = work.parts;
    work.k_count = EvenPartition(s_.k_blocks, work.parts).count(work.slice);
    finder_.find(tile, work);
    return true;
  }

  CLEAVE_HD constexpr bool next_stream(WorkTile& work) {
    uint32_t tile = 0, offset = 0, k_blocks = s_.k_blocks;
    if constexpr (G == Grouping::k) {
      const GroupRange steps = finder_.seek(position_, s_.tiles_across);
      k_blocks = steps.size();
      const uint32_t in_group = position_ - steps.begin * s_.tiles_across;
      const uint32_t in_group_tile = in_group / k_blocks;
      offset = in_group - in_group_tile * k_blocks;
      tile = finder_.group() * s_.tiles_across + in_group_tile;
    } else if constexpr (G == Grouping::classes) {
      const ConvClass& c = finder_.seek_class(position_);
      k_blocks = c.k_blocks;
      const uint32_t in_class = position_ - c.line_before * s_.tiles_across;
      const uint32_t in_class_tile = in_class / k_blocks;
      offset = in_class - in_class_tile * k_blocks;
      tile = c.tiles_before * s_.tiles_across + in_class_tile;
    } else {
      s_.k_blocks_divmod.divmod(position_, tile, offset);
    }
    const uint32_t tile_begin = position_ - offset;
    const uint32_t tile_end = tile_begin + k_blocks;
    work.k_first = offset;
    work.k_step = 1;
    work.k_count = min_of(end_, tile_end) - position_;
    position_ += work.k_count;
    work.slice = 0;
    work.parts = 1;
    if (work.k_count < k_blocks) {
      const uint32_t first = partition().part(tile_begin);
      work.slice = cluster_ - first;
      work.parts = partition().part(tile_end - 1) - first + 1;
    }
    finder_.find(tile, work);
    return true;
  }

  // What the host knows is read from the schedule each time: kept in registers, it makes the largest
  // tiles spill.
  CLEAVE_HD constexpr uint32_t tiles() const {
    return G == Grouping::m || G == Grouping::n ? grouped_tiles_ : s_.tiles;
  }
  /// Whole tiles, or slices' work tiles.
  CLEAVE_HD constexpr uint32_t units() const { return is_sliced(Mode) ? tiles() * s_.clusters_per_tile : tiles(); }
  CLEAVE_HD constexpr EvenPartition partition() const {
    return G == Grouping::none || G == Grouping::classes ? s_.stream_partition : grouped_partition_;
  }

  const Schedule& s_;
  TileFinder<G> finder_;
  uint32_t cluster_, clusters_, rank_;
  uint32_t next_;
  uint32_t turn_ = 0;                          // InTurn: the next slice
  uint32_t position_ = 0, end_ = 0;            // stream_k: what is left of this cluster's part of the line
  uint32_t grouped_tiles_;                     // groups of M or N: how many there are
  EvenPartition grouped_partition_;            // stream_k of groups of K
  uint32_t whole_tiles_ = 0, tail_parts_ = 1;  // stream_k of groups of M or N
};

/// How the planner describes a schedule; `make_schedule` precomputes the divisions.
struct ScheduleShape {
  SplitKMode mode = SplitKMode::none;
  Grouping grouping = Grouping::none;
  uint32_t tiles_m = 1, tiles_n = 1, batches = 1;  // of groups of M (N) tiles_m (tiles_n) is not
                                                   // used
  uint32_t k_blocks = 0;                           // not used of groups of K and of classes
  uint32_t line = 0;                // classes: k blocks of all tiles together; tiles_m counts those of all classes
  uint32_t slices = 1;              // serial, parallel, cluster; a multiple of slices_per_cluster
  uint32_t slices_per_cluster = 1;  // parallel (cluster: all slices are slices_per_cluster)
  uint32_t in_turn = 1;             // none: slices that a cluster takes one after the other
  uint32_t clusters = 1;            // stream_k
  uint32_t stream_tiles = 0;        // stream_k, not used of groups; of classes: all with k blocks
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
  s.slices = is_sliced(shape.mode) ? shape.slices : shape.in_turn;
  s.slices_per_cluster =
      is_sliced(shape.mode) && shape.mode != SplitKMode::cluster ? shape.slices_per_cluster : s.slices;
  s.clusters_per_tile = s.slices / s.slices_per_cluster;
  s.tiles_divmod = FastDivmod(max_of(s.tiles, 1u));
  s.slice_partition = EvenPartition(shape.k_blocks, s.slices);
  if (shape.mode == SplitKMode::stream_k) {
    s.stream_tiles = shape.k_blocks == 0 && !classes ? 0 : shape.stream_tiles;
    s.stream_partition = EvenPartition(classes ? shape.line : s.stream_tiles * shape.k_blocks, shape.clusters);
    s.k_blocks_divmod = FastDivmod(max_of(shape.k_blocks, 1u));
  }
  return s;
}

}  // namespace cleave

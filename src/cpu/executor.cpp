// How threads stand in for the clusters of a GPU, which have one CTA but in the mode of that name. They are claimed
// one at a time by whatever threads there are, so one may only wait for those claimed before it:
//
// - none, cluster: a cluster is one tile, with all slices, added in rank order. Nobody waits.
// - serial: a cluster is one work tile. It waits for the slice before it, which is an earlier cluster.
// - parallel: a cluster is one work tile. The reductions are a second region, after all of them.
// - stream_k: the last to compute a part of a tile adds its parts up. Nobody waits.

#include "cpu/executor.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "base/enumerators.h"
#include "cpu/groups.h"
#include "cpu/thread_team.h"
#include "cpu/tile_epilogue.h"
#include "cpu/tile_product.h"
#include "problem/problem.h"

namespace cleave::cpu {
namespace {

constexpr double kFlopsWorthAThread = 2e6;  // about what starting it costs

/// `Sum`: float, or int32_t where the problem's sums are integers.
template <class Sum, Grouping G>
class Executor {
 public:
  Executor(const GemmProblem& problem, const Tiling& tiling, const GemmArguments& arguments, void* partials,
           uint32_t threads)
      : tiling_(tiling),
        schedule_(tiling.schedule),
        zero_rest_(problem.groups.zero_rest),
        groups_(problem, arguments, tiling.group_step()),
        tiles_(finder().tiles()),
        clusters_(tiling.clusters(tiles_)),
        product_(problem, arguments, tiling),
        epilogue_(problem, arguments, tiling),
        counters_(std::make_unique<std::atomic<uint32_t>[]>(tiling.counters)),
        partials_(static_cast<Sum*>(partials)) {
    const double worth = flops(problem) / kFlopsWorthAThread;
    threads_ = worth < threads ? max_of(uint32_t(worth), 1u) : threads;
    threads_ = max_of(min_of(threads_, clusters_), 1u);
    scratch_ = std::make_unique<BorrowedScratch<Sum>[]>(threads_);
  }

  void run() {
    if (zero_rest_) {
      for (const GroupRange range : groups_.rest()) epilogue_.zero(range);
    }
    // A tile of one slice has no partial tiles, and no workspace for them.
    const bool whole = schedule_.slices == 1 && tiling_.mode != SplitKMode::stream_k;
    switch (whole ? SplitKMode::none : tiling_.mode) {
      case SplitKMode::serial:
        return run_serial();
      case SplitKMode::parallel:
        return run_parallel();
      case SplitKMode::cluster:
        return run_clusters();
      case SplitKMode::stream_k:
        return run_stream_k();
      default:
        return run_tiles();
    }
  }

 private:
  void run_tiles() {
    run_in_order(threads_, clusters_, [&](uint32_t thread, uint32_t cluster) {
      Scratch<Sum>& scratch = *scratch_[thread];
      auto tiles = scheduler<SplitKMode::none>(cluster);
      for (WorkTile work; tiles.next(work);) {
        product_(work, scratch, scratch.sums);
        finish(work, scratch.sums);
      }
    });
  }

  void run_clusters() {
    run_in_order(threads_, clusters_, [&](uint32_t thread, uint32_t cluster) {
      Scratch<Sum>& scratch = *scratch_[thread];
      WorkTile work;
      for (uint32_t rank = 0; rank < schedule_.slices; ++rank) {
        scheduler<SplitKMode::cluster>(cluster, rank).next(work);
        product_(work, scratch, rank == 0 ? scratch.sums : scratch.share);
        if (rank > 0) add_tiles(scratch.sums, scratch.share, scratch.sums);
      }
      finish(work, scratch.sums);
    });
  }

  void run_serial() {
    run_in_order(threads_, clusters_, [&](uint32_t thread, uint32_t cluster) {
      Scratch<Sum>& scratch = *scratch_[thread];
      auto tiles = scheduler<SplitKMode::serial>(cluster);
      for (WorkTile work; tiles.next(work);) {
        product_(work, scratch, scratch.sums);
        std::atomic<uint32_t>& turn = counter(work.tile);
        Sum* const total = partial(work.tile);
        for (uint32_t slice = turn.load(); slice != work.slice; slice = turn.load()) turn.wait(slice);
        if (work.slice > 0) add_tiles(total, scratch.sums, scratch.sums);
        if (work.slice + 1 == schedule_.slices) {
          finish(work, scratch.sums);
        } else {
          std::copy_n(scratch.sums, tiling_.tile_elements(), total);
          turn.store(work.slice + 1);
          turn.notify_all();
        }
      }
    });
  }

  void run_parallel() {
    run_in_order(threads_, clusters_, [&](uint32_t thread, uint32_t cluster) {
      auto tiles = scheduler<SplitKMode::parallel>(cluster);
      for (WorkTile work; tiles.next(work);) {
        product_(work, *scratch_[thread], partial(size_t(work.tile) * schedule_.slices + work.slice));
      }
    });

    const uint32_t width = tiling_.tile_n;
    const EvenPartition rows(tiling_.tile_m, tiling_.reduce_chunks);
    const uint32_t reductions = tiles_ * tiling_.reduce_chunks;
    run_in_order(threads_, reductions, [&](uint32_t thread, uint32_t index) {
      const uint32_t tile = index / tiling_.reduce_chunks, chunk = index % tiling_.reduce_chunks;
      TileCoord coord;
      finder().find(tile, coord);
      const uint32_t first = rows.begin(chunk), last = rows.begin(chunk + 1);
      Sum* const sums = scratch_[thread]->sums;
      const Sum* const partials = partial(size_t(tile) * schedule_.slices);
      for (uint32_t i = first * width; i < last * width; ++i) {
        Sum sum = partials[i];
        for (uint32_t slice = 1; slice < schedule_.slices; ++slice) {
          sum = add(sum, partials[size_t(slice) * tiling_.tile_elements() + i]);
        }
        sums[i] = sum;
      }
      epilogue_(coord, first, last, sums);
    });
  }

  void run_stream_k() {
    run_in_order(threads_, clusters_, [&](uint32_t thread, uint32_t cluster) {
      Scratch<Sum>& scratch = *scratch_[thread];
      auto tiles = scheduler<SplitKMode::stream_k>(cluster);
      for (WorkTile work; tiles.next(work);) {
        if (work.parts == 1) {
          product_(work, scratch, scratch.sums);
          finish(work, scratch.sums);
          continue;
        }
        // Successive clusters hold the parts; one may hold the first of a tile and another's rest.
        const uint32_t owner = cluster - work.slice;
        const auto part = [&](uint32_t i) { return partial(i == 0 ? clusters_ + owner : owner + i); };
        product_(work, scratch, part(work.slice));
        if (counter(owner).fetch_add(1) + 1 != work.parts) continue;
        add_tiles(part(0), part(1), scratch.sums);
        for (uint32_t i = 2; i < work.parts; ++i) add_tiles(scratch.sums, part(i), scratch.sums);
        finish(work, scratch.sums);
      }
    });
  }

  Table<G> table() const {
    if constexpr (G == Grouping::classes) {
      return tiling_.class_table();
    } else {
      return groups_.table();
    }
  }
  template <SplitKMode mode>
  TileScheduler<mode, G> scheduler(uint32_t cluster, uint32_t rank = 0) const {
    return {schedule_, cluster, clusters_, rank, table()};
  }
  TileFinder<G> finder() const { return {schedule_, table()}; }

  void finish(const TileCoord& coord, const Sum* sums) const { epilogue_(coord, 0, tiling_.tile_m, sums); }
  Sum* partial(size_t index) const { return partials_ + index * tiling_.tile_elements(); }
  std::atomic<uint32_t>& counter(uint32_t index) const { return counters_[index]; }
  /// sums = first + second, element by element of a tile.
  void add_tiles(const Sum* first, const Sum* second, Sum* sums) const {
    std::transform(first, first + tiling_.tile_elements(), second, sums, [](Sum x, Sum y) { return add(x, y); });
  }

  const Tiling& tiling_;
  const Schedule& schedule_;
  const bool zero_rest_;
  const Groups groups_;
  const uint32_t tiles_, clusters_;
  const TileProduct<Sum> product_;
  const TileEpilogue<Sum> epilogue_;
  uint32_t threads_;
  std::unique_ptr<BorrowedScratch<Sum>[]> scratch_;  // one per thread
  // Not of the workspace: what waits for a counter relies on nobody else's memory.
  const std::unique_ptr<std::atomic<uint32_t>[]> counters_;
  Sum* const partials_;
};

template <class Sum>
void execute(const GemmProblem& problem, const Tiling& tiling, const GemmArguments& arguments, void* partials,
             uint32_t threads) {
  dispatch(tiling.grouping,
           [&]<Grouping grouping>() { Executor<Sum, grouping>(problem, tiling, arguments, partials, threads).run(); });
}

}  // namespace

void execute(const GemmProblem& problem, const Tiling& tiling, const GemmArguments& arguments, void* partials,
             uint32_t threads) {
  if (sums_are_integers(problem)) {
    execute<int32_t>(problem, tiling, arguments, partials, threads);
  } else {
    execute<float>(problem, tiling, arguments, partials, threads);
  }
}

}  // namespace cleave::cpu

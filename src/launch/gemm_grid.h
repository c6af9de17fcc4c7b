// The tiles of a product, the CTAs that share them and the memory that they meet in: what follows
// from a kernel's configuration, the sizes of one product and the size of the GPU.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "cleave/config/clusters.h"
#include "cleave/config/gemm_config.h"
#include "cleave/config/gemm_params.h"
#include "cleave/config/loads.h"
#include "cleave/config/output.h"
#include "cleave/split_k/fixup_word.h"

namespace cleave {

/// The sizes of a product as its kernel sees it.
struct GemmSizes : ProblemSize {
  uint32_t batch = 1;  ///< entries of a batch, or groups
};

/// A product cut into tiles of D and blocks of K.
struct GemmTiles {
  uint32_t m = 0, n = 0;  ///< along each dimension; along a grouped one: as if there were one group
  uint32_t batches = 0;   ///< entries of a batch, or groups
  uint64_t total = 0;     ///< where only the GPU knows the groups: at most
  uint32_t k_blocks = 0;  ///< of a tile; of groups of K: of all groups; of classes: of the deepest
  uint64_t line = 0;      ///< groups of K (at most) and classes: k blocks of all tiles together
  uint32_t cut = 0;       ///< classes: tiles that have k blocks
};

/// `classes`: a convolution's, with their tiles.
inline GemmTiles gemm_tiles(const GemmConfig& config, const GemmSizes& sizes, const ClassTable& classes = {}) {
  const uint32_t step_m = output_rows(config) * config.cluster.multicast_m;
  const uint32_t step_n = output_columns(config) * config.cluster.multicast_n;
  const auto most = [&](uint32_t extent, uint32_t step) {
    return most_group_steps(config.schedule.grouping, extent, sizes.batch, step);
  };
  GemmTiles tiles;
  tiles.m = ceil_div(sizes.m, step_m);
  tiles.n = ceil_div(sizes.n, step_n);
  tiles.batches = sizes.batch;
  tiles.k_blocks =
      classes.count > 0 && has_taps_along_k(config) ? classes.classes[0].k_blocks : ceil_div(sizes.k, config.tile.k);
  if (config.schedule.grouping == Grouping::classes && classes.count > 0) {
    tiles.m = classes.tiles_until(classes.count - 1);
    for (uint32_t i = 0; i < classes.count; ++i) {
      const ConvClass& of = classes.classes[i];
      tiles.line += uint64_t(of.tiles) * of.k_blocks * tiles.n;
      if (of.k_blocks > 0) tiles.cut += of.tiles * tiles.n;
    }
  }
  switch (config.schedule.grouping) {
    case Grouping::m:
      tiles.total = uint64_t(most(sizes.m, step_m)) * tiles.n;
      break;
    case Grouping::n:
      tiles.total = uint64_t(most(sizes.n, step_n)) * tiles.m;
      break;
    case Grouping::k:
      tiles.line = uint64_t(most(sizes.k, config.tile.k)) * tiles.m * tiles.n;
      [[fallthrough]];
    default:
      tiles.total = uint64_t(tiles.m) * tiles.n * sizes.batch;
  }
  return tiles;
}

/// True if CTAs wait for others of the launch, so that all of them have to be resident at once.
inline bool ctas_wait(const GemmConfig& config) {
  return ctas_wait(config.schedule.split);
}

/// True if slices meet in memory: those of a cluster meet in its own.
inline bool needs_workspace(const GemmConfig& config) {
  return config.schedule.split != SplitKMode::none && config.schedule.split != SplitKMode::cluster;
}

/// Slices that meet before they go to global memory: a cluster's, or those that a CTA of a split takes in turn.
inline uint32_t slices_together(const GemmConfig& config) {
  return std::max(config.cluster.k, config.schedule.turns);
}

/// Nothing, if there are no tiles.
struct GemmGrid {
  ScheduleShape schedule;
  uint32_t blocks = 0;
  size_t counter_bytes = 0;  ///< a multiple of 16
  size_t partial_bytes = 0;
  size_t map_bytes = 0;  ///< of the maps that the kernel makes, with room to align them
};

/// More tiles than stream_k ever cuts of products without groups of K or classes: two waves, on a GPU
/// with many more SMs than any has.
inline constexpr uint64_t kMostCutTiles = 1024;

/// False if the CTAs of all work tiles, or the k blocks of the line that stream_k cuts, are more
/// than 31 bits count. `slices`: as for gemm_grid.
inline bool is_countable(const GemmConfig& config, const GemmTiles& tiles, uint32_t slices) {
  constexpr uint64_t kMost = INT32_MAX;
  const bool stream = config.schedule.split == SplitKMode::stream_k;
  const uint64_t blocks_of_tile = uint64_t(sharers(config)) * (stream ? 1 : std::max(slices, 1u));
  if (tiles.total > kMost / blocks_of_tile) return false;
  const uint64_t line = tiles.line > 0 ? tiles.line : std::min(tiles.total, kMostCutTiles) * tiles.k_blocks;
  return !stream || line <= kMost;
}

/// `slices` of K that a tile has: at least one k block each, and whole clusters of them. For
/// stream_k: how many clusters share a tile, or 1 to use the whole GPU.
inline GemmGrid gemm_grid(const GemmConfig& config, const GemmTiles& tiles, uint32_t slices, uint32_t num_sms) {
  const uint32_t total = uint32_t(tiles.total), sharing = sharers(config);
  const uint32_t resident = std::max(num_sms / sharing, 1u);
  const bool stream = config.schedule.split == SplitKMode::stream_k;
  const bool classes = config.schedule.grouping == Grouping::classes;
  const bool whole = config.schedule.in_turn && config.schedule.split == SplitKMode::none;  // tiles, slice by slice
  const uint32_t together = slices_together(config);
  const uint32_t units = stream || whole ? total : total * (slices / together);

  GemmGrid grid;
  if (total == 0) return grid;
  ScheduleShape& s = grid.schedule;
  s.mode = config.schedule.split;
  s.grouping = config.schedule.grouping;
  s.tiles_m = tiles.m;
  s.tiles_n = tiles.n;
  s.batches = tiles.batches;
  s.k_blocks = tiles.k_blocks;
  if (classes) s.line = uint32_t(tiles.line);
  s.slices = stream || whole ? 1 : slices;
  s.in_turn = whole ? slices : 1;
  s.slices_per_cluster = together;

  // Persistent clusters.
  if (config.cluster.k > 1) {
    s.clusters = units;  // one work tile each
  } else if (stream) {
    const uint64_t wanted = slices > 1 ? tiles.total * slices : resident;
    const uint64_t pieces = classes ? tiles.line : tiles.total * std::max(tiles.k_blocks, 1u);
    s.clusters = std::max(uint32_t(std::min<uint64_t>({resident, wanted, pieces})), 1u);
    s.stream_tiles = classes ? tiles.cut : stream_tiles(total, s.clusters);
  } else if (is_persistent(config.family) || config.schedule.split != SplitKMode::none) {
    s.clusters = std::min(units, resident);
  } else if (config.schedule.grouping != Grouping::none) {
    s.clusters = std::min(units, 2 * resident);
  } else {
    s.clusters = units;  // one tile per CTA, dealt by the hardware
  }
  grid.blocks = s.clusters * cluster_size(config);

  // Bands that make a wave of CTAs touch as few bytes of the operands as possible: `width` columns
  // of tiles and wave / width rows.
  const double step_m = output_rows(config) * config.cluster.multicast_m;
  const double step_n = output_columns(config) * config.cluster.multicast_n;
  s.band_width = std::max(1u, uint32_t(std::lround(std::sqrt(s.clusters * step_m / step_n))));

  const size_t tile_bytes = size_t(config.tile.m) * config.tile.n * sizeof(float);
  const size_t all_tiles = size_t(total) * sharing;
  if (config.schedule.split == SplitKMode::serial) {
    grid.counter_bytes = all_tiles * sizeof(uint32_t);
    grid.partial_bytes = all_tiles * tile_bytes;
  } else if (config.schedule.split == SplitKMode::parallel) {
    grid.counter_bytes = all_tiles * (config.cluster.k > 1 ? config.cluster.k * sizeof(uint32_t) : sizeof(FixupWord));
    grid.partial_bytes = all_tiles * tile_bytes * (slices / together);
  } else if (stream) {
    grid.counter_bytes = grid.blocks * sizeof(uint32_t);
    grid.partial_bytes = 2 * grid.blocks * tile_bytes;  // the end of one tile, the start of another
  }
  grid.counter_bytes = round_up<size_t>(grid.counter_bytes, 16);
  if (has_group_maps(config)) grid.map_bytes = (2 * size_t(tiles.batches) + 1) * sizeof(TensorMap);
  return grid;
}

}  // namespace cleave

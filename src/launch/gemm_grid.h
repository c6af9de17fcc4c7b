// The tiles of a product, the blocks that share them and the memory that they meet in: what follows
// from a kernel's configuration, the sizes of one product and the size of the GPU.
//
// The sizes are read from the kernel's parameters: m, n, k and the extents of groups.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "cleave/kernel/gemm_config.h"
#include "cleave/kernel/gemm_params.h"

namespace cleave {

/// A product cut into tiles of D and blocks of K.
struct GemmTiles {
  uint32_t m = 0, n = 0;  ///< along each dimension; along a grouped one: as if there were one group
  uint32_t batches = 0;   ///< entries of a batch, or groups
  uint64_t total = 0;     ///< where only the GPU knows the groups: at most
  uint32_t k_blocks = 0;  ///< of a tile; of groups of K: of all groups
  uint64_t line_steps = 0;  ///< groups of K: the most k blocks of all groups, each rounded up
};

inline GemmTiles gemm_tiles(const GemmConfig& config, const GemmParams& params, uint32_t batches) {
  const uint32_t step_m = config.tile_m * config.multicast_m;
  const uint32_t step_n = output_columns(config) * config.multicast_n;
  const auto most = [&](uint32_t extent, uint32_t step) {
    return most_group_steps(config.grouping, extent, batches, step);
  };
  GemmTiles tiles;
  tiles.m = ceil_div(params.epilogue.m, step_m);
  tiles.n = ceil_div(params.epilogue.n, step_n);
  tiles.batches = batches;
  tiles.k_blocks = ceil_div(params.k, config.tile_k);
  switch (config.grouping) {
    case Grouping::m:
      tiles.total = uint64_t(most(params.epilogue.m, step_m)) * tiles.n;
      break;
    case Grouping::n:
      tiles.total = uint64_t(most(params.epilogue.n, step_n)) * tiles.m;
      break;
    case Grouping::k:
      tiles.line_steps = most(params.k, config.tile_k);
      [[fallthrough]];
    default:
      tiles.total = uint64_t(tiles.m) * tiles.n * batches;
  }
  return tiles;
}

/// True if blocks wait for each other, so that all of them have to be resident at once.
inline bool blocks_wait(const GemmConfig& config) {
  return config.split != SplitKMode::none && config.cluster_k == 1;
}

/// True if a tile has a number of slices that the host may choose, clusters of `cluster_k` each.
inline bool is_sliced(const GemmConfig& config) {
  return config.split != SplitKMode::none && config.split != SplitKMode::stream_k;
}

struct GemmGrid {
  ScheduleShape schedule;
  uint32_t blocks = 0;
  size_t counter_bytes = 0;  ///< a multiple of 16
  size_t partial_bytes = 0;
};

/// `slices` of K that a tile has: at least one k block each, and whole clusters of them. For
/// stream_k: how many workers share a tile, or 1 to use the whole GPU.
inline GemmGrid gemm_grid(const GemmConfig& config, const GemmTiles& tiles, uint32_t slices,
                          uint32_t multiprocessors) {
  const uint32_t total = uint32_t(tiles.total), sharing = sharers(config);
  const uint32_t resident = std::max(multiprocessors / sharing, 1u);
  const bool stream = config.split == SplitKMode::stream_k;
  const uint32_t units = stream ? total : total * (slices / config.cluster_k);

  GemmGrid grid;
  ScheduleShape& s = grid.schedule;
  s.mode = config.split;
  s.grouping = config.grouping;
  s.tiles_m = tiles.m;
  s.tiles_n = tiles.n;
  s.batches = tiles.batches;
  s.k_blocks = tiles.k_blocks;
  s.slices = stream ? 1 : slices;
  s.ranks = config.cluster_k;

  // Workers: blocks, or clusters of them.
  if (config.cluster_k > 1) {
    s.workers = units;  // one unit each
  } else if (stream) {
    const uint64_t wanted = slices > 1 ? tiles.total * slices : resident;
    const uint64_t pieces = tiles.total * std::max(tiles.k_blocks, 1u);
    s.workers = std::max(uint32_t(std::min<uint64_t>({resident, wanted, pieces})), 1u);
    s.stream_tiles = stream_tiles(total, s.workers);
  } else if (config.family == KernelFamily::sm90 || blocks_wait(config)) {
    s.workers = std::min(units, resident);
  } else if (config.grouping != Grouping::none) {
    s.workers = std::min(units, 2 * resident);
  } else {
    s.workers = units;  // one tile per block, dealt by the hardware
  }
  grid.blocks = s.workers * cluster_size(config);
  if (config.split == SplitKMode::parallel && config.cluster_k == 1) {
    s.reduce_chunks =
        std::clamp(s.workers / std::max(total, 1u), 1u, accumulators_per_thread(config) / 4);
  }

  // Bands that make a wave of blocks touch as few bytes of the operands as possible: `width` columns
  // of tiles and wave / width rows.
  const double step_m = config.tile_m * config.multicast_m;
  const double step_n = output_columns(config) * config.multicast_n;
  s.band_width = std::max(1u, uint32_t(std::lround(std::sqrt(s.workers * step_m / step_n))));

  const size_t tile_bytes = size_t(config.tile_m) * config.tile_n * sizeof(float);
  const size_t all_tiles = size_t(total) * sharing;
  if (config.split == SplitKMode::serial) {
    grid.counter_bytes = all_tiles * sizeof(uint32_t);
    grid.partial_bytes = all_tiles * tile_bytes;
  } else if (config.split == SplitKMode::parallel) {
    grid.counter_bytes = all_tiles * config.cluster_k * sizeof(uint32_t);
    grid.partial_bytes = all_tiles * tile_bytes * (slices / config.cluster_k);
  } else if (stream) {
    grid.counter_bytes = grid.blocks * sizeof(uint32_t);
    grid.partial_bytes = grid.blocks * tile_bytes;
  }
  grid.counter_bytes = round_up<size_t>(grid.counter_bytes, 16);
  return grid;
}

}  // namespace cleave

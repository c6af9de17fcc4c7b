#include "cpu/tiling.h"

#include "cpu/micro_kernel.h"

namespace cleave::cpu {
namespace {

/// The number of tiles is what `max_tile` makes it; their size is then as even as the micro-tile
/// allows.
uint32_t even_tile(uint32_t size, uint32_t max_tile, uint32_t micro) {
  const uint32_t tiles = max_of(ceil_div(size, max_tile), 1u);
  return max_of(round_up(ceil_div(size, tiles), micro), micro);
}

/// Small enough that every slice gets a K block, and that stream_k's cuts are fine.
uint32_t choose_tile_k(uint32_t k, SplitKMode mode, uint32_t slices) {
  const uint32_t largest = mode == SplitKMode::stream_k ? kMaxTileK / 4 : kMaxTileK;
  return max_of(min_of(k / slices, largest), 1u);
}

/// The tiles that would leave workers idle in the last round, and one round more to spread them
/// over.
uint32_t choose_stream_tiles(uint32_t tiles) {
  const uint32_t ragged = tiles % kStreamWorkers;
  return ragged == 0 || tiles < kStreamWorkers ? ragged : ragged + kStreamWorkers;
}

}  // namespace

Tiling make_tiling(const GemmProblem& problem, SplitKMode mode, uint32_t slices) {
  if (mode == SplitKMode::none || mode == SplitKMode::stream_k) slices = 1;
  const auto m = uint32_t(problem.m), n = uint32_t(problem.n), k = uint32_t(problem.k);

  Tiling t;
  t.mode = mode;
  t.tile_m = even_tile(m, kMaxTileM, kMicroRows);
  t.tile_n = even_tile(n, kMaxTileN, kMicroColumns);
  t.tile_k = choose_tile_k(k, mode, slices);

  ScheduleShape shape;
  shape.mode = mode;
  shape.tiles_m = ceil_div(m, t.tile_m);
  shape.tiles_n = ceil_div(n, t.tile_n);
  shape.batches = uint32_t(problem.batch);
  shape.k_blocks = ceil_div(k, t.tile_k);
  shape.slices = slices;
  const uint32_t tiles = shape.tiles_m * shape.tiles_n * shape.batches;
  if (mode == SplitKMode::stream_k) {
    shape.workers = kStreamWorkers;
    shape.stream_tiles = choose_stream_tiles(tiles);
  }
  // Few tiles are reduced by several threads each.
  if (mode == SplitKMode::parallel && tiles < kStreamWorkers) {
    shape.reduce_chunks = t.tile_m / kMicroRows;
  }
  t.schedule = make_schedule(shape);

  switch (mode) {
    case SplitKMode::serial:
      t.workers = t.schedule.units();
      if (slices > 1) t.counters = t.partials = tiles;
      break;
    case SplitKMode::parallel:
      t.workers = t.schedule.units();
      if (slices > 1) t.partials = size_t(tiles) * slices;
      break;
    case SplitKMode::stream_k:
      t.workers = kStreamWorkers;
      if (t.schedule.stream_tiles > 0) t.counters = t.partials = kStreamWorkers;
      break;
    default:
      t.workers = tiles;
  }
  return t;
}

}  // namespace cleave::cpu

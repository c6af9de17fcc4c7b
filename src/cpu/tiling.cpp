#include "cpu/tiling.h"

#include "cpu/groups.h"
#include "cpu/micro_kernel.h"
#include "launch/conv_grid.h"
#include "launch/product.h"

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

/// `size` elements of dimension `of`: of one group, in the mean, where it is grouped.
uint32_t mean_size(const GemmProblem& problem, Grouping of, int64_t size) {
  const bool grouped = problem.groups.dimension == of;
  return uint32_t(grouped ? ceil_div(size, max_of<int64_t>(problem.batch, 1)) : size);
}

/// Elements of K that a tile of a class adds up.
uint32_t class_depth(const GemmProblem& problem, const ConvClass& c) {
  return c.taps.size * gathered_channels(problem.conv);
}

/// Tiles for the classes of a problem whose rows are pixels: each class has its own.
void deal_classes(const GemmProblem& problem, Tiling& t, ScheduleShape& shape) {
  const auto count = uint32_t(t.classes.size());
  deal_tiles(t.classes.data(), count, t.tile_m, t.tile_k, gathered_channels(problem.conv), true);
  const ClassTable table = t.class_table();
  shape.tiles_m = table.tiles_until(count - 1);
  shape.k_blocks = t.classes.front().k_blocks;
  uint64_t depth = 0;
  for (const ConvClass& c : t.classes) depth += uint64_t(c.tiles) * class_depth(problem, c);
  t.depth = uint32_t(depth / shape.tiles_m);
  // The line of k blocks runs through one group's tiles.
  if (shape.mode == SplitKMode::stream_k && shape.batches == 1) {
    shape.line = table.line_until(count - 1) * shape.tiles_n;
    for (const ConvClass& c : t.classes) shape.stream_tiles += c.k_blocks > 0 ? c.tiles : 0;
    shape.stream_tiles *= shape.tiles_n;
  }
}

/// What slices, or the parts of cut tiles, take, whatever the sizes of the groups.
void set_workspace(const GemmProblem& problem, const ScheduleShape& shape, Tiling& t) {
  const bool ragged = t.grouping == Grouping::m || t.grouping == Grouping::n;
  const uint32_t most_tiles = ragged ? most_group_steps(problem, t.group_step()) * t.schedule.tiles_across : t.tiles;
  const bool cuts = ragged                      ? shape.k_blocks > 0
                    : t.grouping == Grouping::k ? most_tiles > 0
                                                : t.schedule.stream_tiles > 0;
  switch (t.mode) {
    case SplitKMode::serial:
      if (shape.slices > 1) t.counters = t.partials = most_tiles;
      break;
    case SplitKMode::parallel:
      if (shape.slices > 1) t.partials = size_t(most_tiles) * shape.slices;
      break;
    case SplitKMode::stream_k:
      if (cuts) {
        t.counters = kStreamClusters;
        t.partials = 2 * kStreamClusters;  // the end of one tile, the start of another
      }
      break;
    default:
      break;
  }
}

}  // namespace

Tiling make_tiling(const GemmProblem& problem, SplitKMode mode, uint32_t slices) {
  if (mode == SplitKMode::none || mode == SplitKMode::stream_k) slices = 1;
  Tiling t;
  t.mode = mode;
  t.parts = is_gated(problem) ? 2 : 1;
  t.classes = find_classes(problem.conv).list;
  t.grouping = t.classes.size() > 1 ? Grouping::classes : problem.groups.dimension;
  const bool rows_have_classes = gathers_a(problem.conv.kind) && !t.classes.empty();

  uint32_t m = mean_size(problem, Grouping::m, problem.m);
  const uint32_t n = mean_size(problem, Grouping::n, problem.n);
  t.depth = mean_size(problem, Grouping::k, problem.k);
  if (rows_have_classes) {  // the deepest one's, which has the most pixels or nearly
    m = t.classes.front().rows;
    t.depth = class_depth(problem, t.classes.front());
  }
  t.tile_m = even_tile(m, kMaxTileM, kMicroRows);
  t.tile_n = even_tile(n, kMaxTileN / t.parts, kMicroColumns) * t.parts;
  if (finds_scales(problem)) t.tile_n = kScaleBlock * t.parts;
  t.tile_k = choose_tile_k(t.depth, mode, slices);

  ScheduleShape shape;
  shape.mode = mode;
  shape.grouping = t.grouping;
  shape.tiles_m = ceil_div(m, t.tile_m);
  shape.tiles_n = ceil_div(n, t.columns());
  shape.batches = uint32_t(problem.batch);
  shape.k_blocks = ceil_div(t.depth, t.tile_k);
  shape.slices = slices;
  if (mode == SplitKMode::stream_k) shape.clusters = kStreamClusters;
  if (rows_have_classes) deal_classes(problem, t, shape);
  t.tiles = shape.tiles_m * shape.tiles_n * shape.batches;
  if (mode == SplitKMode::stream_k && t.grouping != Grouping::classes) {
    shape.stream_tiles = stream_tiles(t.tiles, kStreamClusters);
  }
  // Few tiles are reduced by several threads each.
  if (mode == SplitKMode::parallel && t.tiles < kStreamClusters) {
    t.reduce_chunks = t.tile_m / kMicroRows;
  }
  t.schedule = make_schedule(shape);
  set_workspace(problem, shape, t);
  return t;
}

TileArea area_of(const GemmProblem& problem, const Tiling& tiling, const TileCoord& coord) {
  const auto range = [&](Grouping dimension, int64_t size) {
    return tiling.grouping == dimension ? coord.range : GroupRange{0, uint32_t(size)};
  };
  const GroupRange rows = tiling.grouping == Grouping::classes ? coord.range : range(Grouping::m, problem.m);
  const GroupRange columns = range(Grouping::n, problem.n);
  const GroupRange k = gathers_a(problem.conv.kind)
                           ? GroupRange{0, class_depth(problem, tiling.classes[coord.conv_class])}
                           : range(Grouping::k, problem.k);
  const uint32_t row = rows.begin + coord.m * tiling.tile_m;
  const uint32_t column = columns.begin + coord.n * tiling.columns();
  return {row, column, min_of(tiling.tile_m, rows.end - row), min_of(tiling.columns(), columns.end - column), k};
}

}  // namespace cleave::cpu

// The partial results of tiles that reduce D, by threads of the host: of every unit there is one, where the second
// kernel looks for it, and they come to what D does.

#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <cstdint>
#include <thread>
#include <vector>

// What the compiler of kernels brings.
#define CLEAVE_DEVICE inline

namespace {

constexpr uint32_t kWarp = 32;

struct Index {
  uint32_t x;
};
thread_local Index threadIdx;
std::barrier<> warp(kWarp);
std::array<float, kWarp> exchanged;

float __shfl_xor_sync(uint32_t, float value, uint32_t distance) {
  const uint32_t lane = threadIdx.x % kWarp;
  exchanged[lane] = value;
  warp.arrive_and_wait();
  const float other = exchanged[lane ^ distance];
  warp.arrive_and_wait();
  return other;
}

}  // namespace

#include "cleave/config/threads.h"
#include "cleave/epilogue/reduce_tile.h"

namespace cleave {
namespace {

constexpr uint32_t kRows = 150, kColumns = 203;  // ragged, several tiles

/// Values whose sums are exact.
float value_of(uint32_t row, uint32_t column) {
  return float(int32_t((row * 7 + column * 13) % 31) - 15);
}

constexpr GemmConfig config_of(KernelFamily family, SplitKMode split, InputShape shape, Reduction reduction,
                               Grouping grouping = Grouping::none) {
  GemmConfig c;
  c.schedule.grouping = grouping;
  c.family = family;
  c.tile.n = 64;
  c.warps = {.consumers = 2, .m = 2, .n = 4};
  c.schedule.split = split;
  c.epilogue.function.given = true;
  c.epilogue.function.outputs = 1;
  c.epilogue.function.packed_outputs.p0 = packed({.shape = shape, .reduction = reduction});
  return c;
}

/// A group's tiles: from a row (column) on, before another one.
struct Lines {
  uint32_t begin, end, to_units = 0;
};

struct TileOrigin {
  uint32_t m, n, end, to_units;
};

/// All tiles, a warp after the other; its lanes are threads.
template <GemmConfig C>
std::vector<float> partials_of_tiles(const std::vector<Lines>& rows, const std::vector<Lines>& columns, int64_t stride,
                                     size_t count) {
  constexpr FunctionOperandConfig kOutput = C.epilogue.function.output(0);
  std::vector<float> partials(count, -1e9f);  // what nobody writes shows
  GemmParams p;
  p.size = {kRows, kColumns, 1};
  p.epilogue.outputs[0] = {partials.data(), stride, 0};
  std::vector<TileOrigin> origins;
  for (const Lines& r : rows) {
    for (const Lines& c : columns) {
      for (uint32_t m = r.begin; m < r.end; m += C.tile.m) {
        for (uint32_t n = c.begin; n < c.end; n += C.tile.n)
          origins.push_back(C.schedule.grouping == Grouping::n ? TileOrigin{m, n, c.end, c.to_units}
                                                               : TileOrigin{m, n, r.end, r.to_units});
      }
    }
  }
  const auto lane_of = [&](uint32_t lane) {
    for (const TileOrigin& at : origins) {
      for (uint32_t first = 0; first < math_threads(C); first += kWarp) {
        threadIdx.x = first + lane;
        const Fragment<C> fragment(threadIdx.x);
        const Tile<C> tile{fragment, at.m, at.n, 0, at.end, nullptr, nullptr, false, at.to_units};
        UnitParts parts;
        for (uint32_t block = 0; block < Fragment<C>::kBlocks; ++block) {
          float of_block[4];
          for (uint32_t i = 0; i < 4; ++i) {
            const uint32_t row = tile.row(block) + i / 2 * 8, column = tile.col(block) + i % 2;
            of_block[i] = row < tile.m_end(p.size) && column < tile.n_end(p.size)
                              ? reduced_part(kOutput.reduction, value_of(row, column))
                              : 0.0f;
          }
          parts.add<kOutput.reduction, kOutput.shape>(of_block);
          if (!ends_unit<C, kOutput.shape>(block)) continue;
          parts.join_lanes<kOutput.reduction, kOutput.shape>();
          store_unit<C, 0>(p, tile, block, {tile.row(block), tile.row(block) + 8}, parts);
          parts = {};
        }
      }
    }
  };
  std::vector<std::jthread> lanes;
  for (uint32_t lane = 0; lane < kWarp; ++lane) lanes.emplace_back(lane_of, lane);
  lanes.clear();
  return partials;
}

template <KernelFamily family, SplitKMode split, InputShape shape, Reduction reduction>
void check() {
  static constexpr GemmConfig C = config_of(family, split, shape, reduction);
  const uint32_t row_units = reduced_row_units(C, ceil_div(kRows, C.tile.m));
  const uint32_t column_units = reduced_column_units(C, ceil_div(kColumns, C.tile.n));
  const bool column = shape == InputShape::column, row = shape == InputShape::row;
  const uint32_t lines = column ? kRows : row ? kColumns : 1;
  const uint32_t units = column ? column_units : row ? row_units : row_units * column_units;
  const std::vector<float> partials =
      partials_of_tiles<C>({{0, kRows}}, {{0, kColumns}}, column || row ? lines : column_units, size_t(units) * lines);
  std::vector<float> expected(lines), found(lines);
  for (uint32_t i = 0; i < kRows; ++i) {
    for (uint32_t j = 0; j < kColumns; ++j) {
      float& line = expected[column ? i : row ? j : 0];
      line = joined(reduction, line, reduced_part(reduction, value_of(i, j)));
    }
  }
  for (uint32_t unit = 0; unit < units; ++unit) {
    for (uint32_t line = 0; line < lines; ++line) {
      const float part = partials[size_t(unit) * lines + line];
      ASSERT_NE(part, -1e9f) << "unit " << unit << " of line " << line << " has no partial result";
      found[line] = joined(reduction, found[line], part);
    }
  }
  EXPECT_EQ(found, expected);
}

template <KernelFamily family, SplitKMode split>
void check_shapes() {
  check<family, split, InputShape::column, Reduction::sum>();
  check<family, split, InputShape::row, Reduction::sum>();
  check<family, split, InputShape::scalar, Reduction::sum>();
  check<family, split, InputShape::column, Reduction::absmax>();
}

/// The second kernel's way to what each group comes to, which is that of its own elements.
template <KernelFamily family, SplitKMode split, InputShape shape, Grouping grouping>
void check_groups() {
  static constexpr GemmConfig C = config_of(family, split, shape, Reduction::sum, grouping);
  constexpr bool kByRows = grouping == Grouping::m;
  constexpr uint32_t kExtent = kByRows ? kRows : kColumns, kAcross = kByRows ? kColumns : kRows;
  const uint32_t step = group_step(C);
  std::vector<Lines> groups{{kExtent - 60, kExtent}, {5, 5}, {1, 79}, {80, 83}};
  std::vector<uint32_t> before{0};
  for (Lines& group : groups) {
    group.to_units = before.back() * step - group.begin;
    before.push_back(before.back() + ceil_div(group.end - group.begin, step));
  }
  const uint32_t along = kByRows ? reduced_row_units(C, 1) : reduced_column_units(C, 1);
  const uint32_t across =
      kByRows ? reduced_column_units(C, ceil_div(kColumns, C.tile.n)) : reduced_row_units(C, ceil_div(kRows, C.tile.m));
  const bool scalar = shape == InputShape::scalar;
  const uint32_t lines = scalar ? 1 : kAcross, of_step = scalar ? along * across : along;
  const size_t count = size_t(before.back()) * of_step * lines;
  const std::vector<Lines> all{{0, kAcross}};
  const std::vector<float> partials =
      partials_of_tiles<C>(kByRows ? groups : all, kByRows ? all : groups, scalar ? across : lines, count);
  for (size_t g = 0; g < groups.size(); ++g) {
    std::vector<float> expected(lines), found(lines);
    for (uint32_t i = groups[g].begin; i < groups[g].end; ++i) {
      for (uint32_t j = 0; j < kAcross; ++j) expected[scalar ? 0 : j] += kByRows ? value_of(i, j) : value_of(j, i);
    }
    for (uint32_t unit = before[g] * of_step; unit < before[g + 1] * of_step; ++unit) {
      for (uint32_t line = 0; line < lines; ++line) found[line] += partials[size_t(unit) * lines + line];
    }
    EXPECT_EQ(found, expected) << "group " << g;
  }
}

template <KernelFamily family, SplitKMode split>
void check_shapes_of_groups() {
  check_groups<family, split, InputShape::row, Grouping::m>();
  check_groups<family, split, InputShape::scalar, Grouping::m>();
  check_groups<family, split, InputShape::column, Grouping::n>();
  check_groups<family, split, InputShape::scalar, Grouping::n>();
}

TEST(ReduceTile, OfGroupsThatLieAnywhere) {
  check_shapes_of_groups<KernelFamily::sm90, SplitKMode::none>();
  check_shapes_of_groups<KernelFamily::sm90, SplitKMode::parallel>();
  check_shapes_of_groups<KernelFamily::portable, SplitKMode::none>();
  check_shapes_of_groups<KernelFamily::portable, SplitKMode::parallel>();
}

TEST(ReduceTile, OfWholeTiles) {
  check_shapes<KernelFamily::sm90, SplitKMode::none>();
  check_shapes<KernelFamily::portable, SplitKMode::stream_k>();
}

TEST(ReduceTile, OfTilesInParts) {
  check_shapes<KernelFamily::sm90, SplitKMode::parallel>();
  check_shapes<KernelFamily::portable, SplitKMode::parallel>();
}

}  // namespace
}  // namespace cleave

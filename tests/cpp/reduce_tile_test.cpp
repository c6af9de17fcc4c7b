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

constexpr GemmConfig config_of(KernelFamily family, SplitKMode split, InputShape shape, Reduction reduction) {
  GemmConfig c;
  c.family = family;
  c.tile.n = 64;
  c.warps = {.consumers = 2, .m = 2, .n = 4};
  c.schedule.split = split;
  c.epilogue.function.given = true;
  c.epilogue.function.outputs = 1;
  c.epilogue.function.packed_outputs.p0 = packed({.shape = shape, .reduction = reduction});
  return c;
}

/// All tiles, a warp after the other; its lanes are threads.
template <GemmConfig C>
std::vector<float> partials_of_tiles(uint32_t row_units, uint32_t column_units, int64_t stride, size_t count) {
  constexpr FunctionOperandConfig kOutput = C.epilogue.function.output(0);
  std::vector<float> partials(count, -1e9f);  // what nobody writes shows
  GemmParams p;
  p.size = {kRows, kColumns, 1};
  p.epilogue.outputs[0] = {partials.data(), stride, 0};
  const auto lane_of = [&](uint32_t lane) {
    for (uint32_t m0 = 0; m0 < row_units * kReducedRows; m0 += C.tile.m) {
      for (uint32_t n0 = 0; n0 < column_units * reduced_columns(C); n0 += C.tile.n) {
        for (uint32_t first = 0; first < math_threads(C); first += kWarp) {
          threadIdx.x = first + lane;
          const Fragment<C> fragment(threadIdx.x);
          const Tile<C> tile{fragment, m0, n0, 0, 0, nullptr, nullptr, false};
          UnitParts parts;
          for (uint32_t block = 0; block < Fragment<C>::kBlocks; ++block) {
            float of_block[4];
            for (uint32_t i = 0; i < 4; ++i) {
              const uint32_t row = tile.row(block) + i / 2 * 8, column = tile.col(block) + i % 2;
              of_block[i] =
                  row < kRows && column < kColumns ? reduced_part(kOutput.reduction, value_of(row, column)) : 0.0f;
            }
            parts.add<kOutput.reduction, kOutput.shape>(of_block);
            if (!ends_unit<C, kOutput.shape>(block)) continue;
            parts.join_lanes<kOutput.reduction, kOutput.shape>();
            store_unit<C, 0>(p, tile, block, {tile.row(block), tile.row(block) + 8}, parts);
            parts = {};
          }
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
      partials_of_tiles<C>(row_units, column_units, column || row ? lines : column_units, size_t(units) * lines);
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

// Matrices that share elements, against the enumeration of all addresses.

#include "problem/overlap.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <set>

namespace cleave {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

bool overlaps_by_enumeration(const Placement& p) {
  std::set<int64_t> seen;
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t i = 0; i < p.rows; ++i) {
      for (int64_t j = 0; j < p.columns; ++j) {
        const int64_t at = b * p.layout.stride_batch + i * p.layout.stride_row + j * p.layout.stride_col;
        if (!seen.insert(at).second) return true;
      }
    }
  }
  return false;
}

class Random {
 public:
  int64_t operator()(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }

 private:
  std::mt19937 random_{1};
};

TEST(Overlap, WithinOneMatrixAgreesWithEnumeration) {
  Random random;
  int overlapping = 0;
  constexpr int kRounds = 60000;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t most = random(1, 3) == 1 ? 80 : 25;
    MatrixLayout layout{.stride_row = random(0, most), .stride_col = 1, .stride_batch = random(0, most)};
    const bool no_unit_stride = random(0, 3) == 0;
    if (no_unit_stride) layout.stride_col = random(0, most);
    if (random(0, 1) == 1) std::swap(layout.stride_row, layout.stride_col);
    const Placement p{layout, random(0, 9), random(0, 9), no_unit_stride ? 1 : random(0, 9)};
    const bool expected = overlaps_by_enumeration(p);
    overlapping += expected;
    ASSERT_EQ(overlaps_itself(p), expected)
        << p.batch << " x " << p.rows << " x " << p.columns << " with strides " << layout.stride_batch << ", "
        << layout.stride_row << ", " << layout.stride_col;
  }
  EXPECT_GT(overlapping, kRounds / 10);
  EXPECT_LT(overlapping, kRounds * 9 / 10);
}

TEST(Overlap, WithinOneHugeMatrixIsQuick) {
  // Rows and batch entries interleave so that they first meet after 2^30 - 1 rows.
  const int64_t s = (int64_t(1) << 30) + 1, t = s + 4;
  const MatrixLayout layout{.stride_row = s, .stride_col = 1, .stride_batch = t};
  EXPECT_FALSE(overlaps_itself({layout, kMost, 3, 1 << 20}));
  EXPECT_TRUE(overlaps_itself({layout, kMost, 3, kMost}));
}

bool share_bytes_by_enumeration(const Placement& x, int64_t x_at, const Placement& y, int64_t y_at) {
  std::set<int64_t> seen;
  const auto each = [](const Placement& p, int64_t at, const auto& visit) {
    for (int64_t b = 0; b < p.batch; ++b) {
      for (int64_t i = 0; i < p.rows; ++i) {
        for (int64_t j = 0; j < p.columns; ++j) {
          const int64_t element = b * p.layout.stride_batch + i * p.layout.stride_row + j * p.layout.stride_col;
          for (uint32_t byte = 0; byte < size_of(p.layout.dtype); ++byte) {
            visit(at + element * size_of(p.layout.dtype) + byte);
          }
        }
      }
    }
  };
  bool shared = false;
  each(x, x_at, [&](int64_t byte) { seen.insert(byte); });
  each(y, y_at, [&](int64_t byte) { shared |= seen.count(byte) > 0; });
  return shared;
}

TEST(Overlap, BetweenMatricesIsNeverMissed) {
  Random random;
  alignas(16) static char memory[2000];
  int apart = 0;
  for (int round = 0; round < 30000; ++round) {
    const int64_t stride = random(1, 12), batch_stride = random(0, 30);
    const auto draw = [&] {
      MatrixLayout layout{.dtype = random(0, 1) == 1 ? DType::f32 : DType::bf16,
                          .stride_row = random(0, 2) == 0 ? random(1, 12) : stride,
                          .stride_col = random(0, 3) == 0 ? random(0, 3) : 1,
                          .stride_batch = random(0, 2) == 0 ? random(0, 30) : batch_stride};
      if (random(0, 1) == 1) std::swap(layout.stride_row, layout.stride_col);
      return layout;
    };
    const MatrixLayout x_layout = draw(), y_layout = draw();
    const Placement x{x_layout, random(0, 5), random(0, 5), random(0, 3)};
    const Placement y{y_layout, random(0, 5), random(0, 5), random(0, 3)};
    const int64_t delta = random(-60, 60) * 2;
    const bool found = may_overlap(x, memory + 1000, y, memory + 1000 + delta);
    apart += !found;
    if (share_bytes_by_enumeration(x, 0, y, delta)) {
      ASSERT_TRUE(found);
    }
  }
  EXPECT_GT(apart, 3000);
}

TEST(Overlap, MatricesCutFromOneBufferAreApart) {
  static float buffer[4096];
  const MatrixLayout wide{.dtype = DType::f32, .stride_row = 20, .stride_batch = 200};
  const Placement part{wide, 10, 8, 3};
  EXPECT_FALSE(may_overlap(part, buffer, part, buffer + 8)) << "side by side";
  EXPECT_TRUE(may_overlap(part, buffer, part, buffer + 7));
  const MatrixLayout stacked{.dtype = DType::f32, .stride_row = 10, .stride_batch = 200};
  const Placement upper{stacked, 10, 10, 3};
  EXPECT_FALSE(may_overlap(upper, buffer, upper, buffer + 100)) << "one above the other, in each batch entry";
  EXPECT_TRUE(may_overlap(upper, buffer, upper, buffer + 90));
}

}  // namespace
}  // namespace cleave

// Operands that threads copy beside TMA (mainloop/narrow_loader.h): where they lie in shared memory, and which kernels
// have them.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "canonical_layout.h"
#include "cleave/config/loads.h"
#include "cleave/device.h"
#include "cleave/mainloop/narrow_vectors.h"
#include "cleave/memory/descriptor.h"
#include "plan/catalogue/candidates.h"
#include "plan/catalogue/listed.h"

namespace cleave {
namespace {

template <uint32_t Width>
void check_strips(uint32_t tile_rows, uint32_t tile_k) {
  constexpr uint32_t kStage = 5 * 1024;
  ASSERT_EQ(line_bytes(Major::mn, tile_rows, DType::bf16), Width);
  const uint64_t descriptor = make_descriptor<Major::mn, Width>(kStage, tile_k);
  for (uint32_t row = 0; row < tile_rows; ++row) {
    for (uint32_t k = 0; k < tile_k; ++k) {
      // The multiplication's instructions take 16 k's each.
      const uint64_t instruction = descriptor + k_step_bytes<Major::mn, Width>(k / 16, tile_rows, DType::bf16) / 16;
      ASSERT_EQ(kStage + strip_offset<Width>(k, row * 2, tile_k), address_of(instruction, row, k % 16))
          << tile_rows << " rows: " << row << ", k " << k;
    }
  }
}

TEST(Narrow, ThreadsWriteWhereTheTensorCoresRead) {
  for (const uint32_t tile_k : {64, 128}) {
    for (const uint32_t rows : {64, 128, 192}) check_strips<128>(rows, tile_k);
    for (const uint32_t rows : {32, 96}) check_strips<64>(rows, tile_k);
    for (const uint32_t rows : {16, 48, 80}) check_strips<32>(rows, tile_k);
  }
}

TEST(Narrow, EveryVectorIsCopiedOnce) {
  constexpr uint32_t kThreads = 96;
  for (const uint32_t tile_k : {64, 128}) {
    for (uint32_t per_k = 1; per_k <= 128; ++per_k) {
      std::map<std::pair<uint32_t, uint32_t>, int> copies;
      for (uint32_t thread = 0; thread < kThreads; ++thread) {
        NarrowVectors<kThreads> vectors;
        vectors.start(per_k, thread);
        vectors.for_each(tile_k, [&](uint32_t k, uint32_t vector) { ++copies[{k, vector}]; });
      }
      ASSERT_EQ(copies.size(), size_t(tile_k) * per_k);
      for (const auto& [at, count] : copies) {
        ASSERT_LT(at.first, tile_k);
        ASSERT_LT(at.second, per_k);
        ASSERT_EQ(count, 1);
      }
    }
  }
}

GemmProblem thin(int64_t m, Major a, Major b, int64_t lda = 0) {
  GemmProblem p;
  p.m = m;
  p.n = 5120;
  p.k = 1280;
  p.a = a == Major::k ? MatrixLayout{DType::bf16, p.k, 1} : MatrixLayout{DType::bf16, 1, lda > 0 ? lda : m};
  p.b = b == Major::k ? MatrixLayout{DType::bf16, 1, p.k} : MatrixLayout{DType::bf16, p.n, 1};
  p.c = p.d = {DType::bf16, p.n, 1};
  return p;
}

std::optional<Choice> choose(const GemmProblem& p, const std::string& spec) {
  return make_choice(p, device_info(kPlanOnlyH100), *parse_spec(spec));
}

TEST(Narrow, RowsThatAreContiguousAreCopied) {
  const GemmProblem p = thin(8, Major::mn, Major::k);
  const auto straight = choose(p, "sm90 64x48 narrow parallel 2"), turned = choose(p, "sm90 128x16 transposed narrow");
  ASSERT_TRUE(straight && turned);
  EXPECT_TRUE(straight->config.operands.copied_a && !straight->config.operands.copied_b);
  EXPECT_FALSE(has_map_a(straight->config));
  EXPECT_TRUE(has_map_b(straight->config));
  EXPECT_TRUE(turned->config.operands.copied_b && !turned->config.operands.copied_a);
  EXPECT_TRUE(has_map_a(turned->config));
  EXPECT_FALSE(has_map_b(turned->config));
  EXPECT_FALSE(choose(p, "sm90 128x16 transposed")) << "TMA's strips are 64 columns wide";
  EXPECT_EQ(to_string(turned->spec), "sm90 128x16 transposed narrow");
  EXPECT_FALSE(choose(thin(8, Major::k, Major::k), "sm90 64x48 narrow")) << "K is contiguous";
}

TEST(Narrow, OfTwoTheSmallerIsCopied) {
  const GemmProblem p = thin(8, Major::mn, Major::mn);
  EXPECT_TRUE(choose(p, "sm90 64x64 narrow")->config.operands.copied_a);
  EXPECT_TRUE(choose(p, "sm90 128x16 transposed narrow")->config.operands.copied_b);
  EXPECT_FALSE(choose(p, "sm90 64x48 narrow")) << "the weights come by TMA, in strips";
}

// TMA wants 16 bytes; threads take what there is, down to two elements.
TEST(Narrow, RowsThatTmaCannotReadAreCopied) {
  for (const auto& [m, bytes] : {std::pair(24, 16u), {12, 8u}, {10, 4u}}) {
    const auto choice = choose(thin(m, Major::mn, Major::k), "sm90 64x128 narrow");
    ASSERT_TRUE(choice) << m;
    EXPECT_EQ(choice->config.operands.load_bytes_a, bytes);
    EXPECT_EQ(choice->config.operands.load_bytes_b, 16u);
    EXPECT_EQ(choose(thin(m, Major::mn, Major::k), "sm90 64x128").has_value(), bytes == 16) << m;
  }
  EXPECT_FALSE(choose(thin(9, Major::mn, Major::k), "sm90 64x128 narrow"));
  EXPECT_TRUE(choose(thin(9, Major::mn, Major::k, 16), "sm90 64x128 narrow"));
}

TEST(Narrow, OnlyProductsOfFewRowsHaveIt) {
  const auto has = [](const GemmProblem& p) {
    for (const Choice& choice : candidates(p, device_info(kPlanOnlyH100)))
      if (choice.spec.narrow) return true;
    return false;
  };
  EXPECT_TRUE(has(thin(8, Major::mn, Major::k)));
  EXPECT_TRUE(has(thin(72, Major::mn, Major::mn)));
  EXPECT_FALSE(has(thin(80, Major::mn, Major::mn))) << "TMA's boxes are mostly full";
  EXPECT_TRUE(has(thin(90, Major::mn, Major::k))) << "TMA cannot read these rows";
  EXPECT_FALSE(has(thin(8, Major::k, Major::k)));
  EXPECT_FALSE(has(thin(8, Major::k, Major::mn))) << "those of B are many";
  EXPECT_FALSE(has(thin(512, Major::mn, Major::k)));
  GemmProblem tf32 = thin(8, Major::mn, Major::k);
  for (MatrixLayout* matrix : {&tf32.a, &tf32.b, &tf32.c, &tf32.d}) matrix->dtype = DType::f32;
  EXPECT_FALSE(has(tf32));
  GemmProblem grouped = thin(8, Major::mn, Major::k);
  grouped.groups.dimension = Grouping::n;
  grouped.batch = 4;
  EXPECT_FALSE(has(grouped));
}

TEST(Narrow, TheCatalogueListsIt) {
  for (const char* listed : {"sm90 64x48 narrow", "sm90 128x16 transposed narrow parallel 8 clusters 2"})
    EXPECT_TRUE(is_listed(*parse_spec(listed))) << listed;
  for (const char* not_listed : {"portable 64x64 narrow", "sm90 64x128 narrow multicast 2x1",
                                 "sm90 128x128 pingpong narrow", "sm90 64x64 gather narrow"})
    EXPECT_FALSE(is_listed(*parse_spec(not_listed))) << not_listed;
}

}  // namespace
}  // namespace cleave

// Tiles whose last strip of an operand that is contiguous along N is only partly theirs: which there are, where their
// columns lie, and what loading the whole strip is predicted to cost.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "all_kernels/typical_problems.h"
#include "canonical_layout.h"
#include "cleave/config/loads.h"
#include "cleave/config/smem_plan.h"
#include "cleave/config/tma_box.h"
#include "cleave/conv.h"
#include "cleave/device.h"
#include "cleave/memory/descriptor.h"
#include "plan/catalogue/candidates.h"
#include "plan/catalogue/listed.h"
#include "plan/cost/product_cost.h"

namespace cleave {
namespace {

using namespace typical;

std::optional<Choice> choose(const GemmProblem& p, const std::string& spec) {
  return make_choice(p, device_info(kPlanOnlyH200), *parse_spec(spec));
}

GemmProblem bf16(Major a, Major b) {
  return product(DType::bf16, DType::bf16, DType::bf16, a, b);
}

TEST(Strips, ProductsHaveEveryWidth) {
  for (const char* tile : {"64x80", "64x96", "64x224", "128x112", "128x240", "192x144", "192x192", "256x176"}) {
    const std::string straight = std::string("sm90 ") + tile, turned = straight + " transposed";
    for (const Major a : {Major::k, Major::mn}) {
      for (const Major b : {Major::k, Major::mn}) {
        EXPECT_TRUE(choose(bf16(a, b), straight)) << straight;
        EXPECT_TRUE(choose(bf16(a, b), turned)) << turned;
      }
    }
  }
}

TEST(Strips, NarrowTilesAndOtherThanPlainProductsHaveNot) {
  const GemmProblem along_n = bf16(Major::k, Major::mn);
  EXPECT_FALSE(choose(along_n, "sm90 64x48"));
  EXPECT_FALSE(choose(along_n, "sm90 128x64 multicast 2x1")) << "one strip for two";
  EXPECT_TRUE(choose(grouped(along_n, Grouping::m), "sm90 128x128"));
  EXPECT_FALSE(choose(grouped(along_n, Grouping::m), "sm90 128x96"));
  EXPECT_TRUE(choose(with_gate(along_n), "sm90 128x128"));
  EXPECT_FALSE(choose(with_gate(along_n), "sm90 128x160")) << "a gate's strips and its up's follow each other";
  const GemmProblem packed = weights(DType::bf16, DType::bf16, 128, false, Major::mn);
  EXPECT_TRUE(choose(packed, "sm90 128x128 transposed"));
  EXPECT_FALSE(choose(packed, "sm90 128x96 transposed"));
  const GemmProblem along_k = weights(DType::bf16, DType::bf16, 128, false);
  EXPECT_TRUE(choose(along_k, "sm90 192x144 transposed"));
  EXPECT_FALSE(choose(along_k, "sm90 192x192 transposed")) << "no registers for its elements";
}

TEST(Strips, AStageHasRoomForWholeOnesOrHalves) {
  for (const auto& [width, columns] : {std::pair(80, 128u), {96, 96}, {128, 128}, {144, 192}, {160, 160}, {208, 256}}) {
    const auto choice = choose(bf16(Major::k, Major::mn), "sm90 128x" + std::to_string(width));
    ASSERT_TRUE(choice) << width;
    EXPECT_EQ(stage_columns(choice->config), columns);
    EXPECT_EQ(smem_plan(choice->config).b_stage, columns * choice->config.tile.k * 2);
    const auto along_k = choose(bf16(Major::k, Major::k), "sm90 128x" + std::to_string(width));
    EXPECT_EQ(stage_columns(along_k->config), uint32_t(width));
  }
}

TEST(Strips, FiltersOfDataGradientsMayBeHalfOfOne) {
  const ConvAxis axis{.size = 20, .filter = 3, .pad_begin = 1, .pad_end = 1};
  const ConvLayout conv{
      .kind = Conv::dgrad, .images = 2, .channels = 32, .filters = 128, .axes = {ConvAxis{}, axis, axis}};
  const GemmProblem gradient = implicit_gemm(conv, 1, DType::f16, DType::f16);
  for (const char* kernel : {"sm90 64x32", "sm90 128x32", "sm90 128x32 parallel 2"}) {
    const auto choice = choose(gradient, kernel);
    ASSERT_TRUE(choice) << kernel;
    EXPECT_EQ(stage_columns(choice->config), 32u);
    EXPECT_EQ(line_bytes_of_b(choice->config), 64u);
  }
  EXPECT_FALSE(choose(gradient, "sm90 128x32 multicast 2x1")) << "none is left to share";
  EXPECT_FALSE(choose(gradient, "sm90 128x16"));
  EXPECT_FALSE(choose(bf16(Major::k, Major::mn), "sm90 128x32")) << "products have threads that copy narrow operands";
}

bool is_candidate(const GemmProblem& p, const std::string& kernel) {
  const std::vector<Choice> all = candidates(p, device_info(kPlanOnlyH200), Kernels::all);
  return std::ranges::any_of(all, [&](const Choice& choice) { return to_string(choice.spec) == kernel; });
}

TEST(Strips, FourCtasShareThemWhereAllRunAtOnce) {
  GemmProblem p = bf16(Major::k, Major::mn);
  p.m = 5120;
  p.n = 328;  // 30 clusters of tiles of 128 x 112, and of 128 x 128
  const std::string fours = "sm90 128x112 multicast 4x1";
  EXPECT_TRUE(is_candidate(p, fours));
  EXPECT_TRUE(is_listed(*parse_spec(fours)));
  EXPECT_FALSE(choose(p, fours + " parallel 2")) << "slices wait for each other";
  EXPECT_FALSE(choose(p, fours + " parallel 4 clusters 2"));
  EXPECT_FALSE(is_candidate(p, "sm90 64x224 multicast 4x1")) << "it was slow";
  EXPECT_FALSE(is_listed(*parse_spec(fours + " parallel 2")));
  p.n = 448;
  EXPECT_FALSE(choose(p, fours)) << "40 clusters";
  GemmProblem along_k = bf16(Major::k, Major::k);
  along_k.m = 5120, along_k.n = 328;
  EXPECT_FALSE(is_candidate(along_k, fours));
}

/// TMA writes a strip's k's as rows of `Line` bytes, strip after strip.
template <uint32_t Line>
void expect_columns_where_they_lie(uint32_t width) {
  constexpr uint32_t kStage = 3 * 1024, kStrip = Line / 2, kTileK = 64;
  const uint32_t columns = round_up(width, kStrip);
  ASSERT_EQ(line_bytes(Major::mn, columns, DType::bf16), Line);
  const uint64_t descriptor = make_descriptor<Major::mn, Line>(kStage, kTileK);
  for (uint32_t column = 0; column < width; ++column) {
    for (uint32_t k = 0; k < kTileK; ++k) {
      const uint64_t instruction = descriptor + k_step_bytes<Major::mn, Line>(k / 16, columns, DType::bf16) / 16;
      const uint32_t written = kStage + column / kStrip * kTileK * Line + swizzle<Line>(k, column % kStrip * 2);
      ASSERT_EQ(address_of(instruction, column, k % 16), written) << width << " columns: " << column << ", k " << k;
    }
  }
}

TEST(Strips, TensorCoresReadColumnsWhereTheyLie) {
  for (const uint32_t width : {80, 112, 144, 176, 208, 240}) expect_columns_where_they_lie<128>(width);
  for (const uint32_t width : {32, 96, 160, 224}) expect_columns_where_they_lie<64>(width);
}

ProductTime time_of(int64_t columns, const char* kernel) {
  GemmProblem p = bf16(Major::k, Major::mn);
  p.n = columns;
  p.b.stride_row = p.c.stride_row = p.d.stride_row = 4096;
  ProductConstants constants = product_constants(MainloopKind::strips);
  constants.shared_line = 0;  // what is partly outside of the matrix is loaded like the rest
  return predict_product(*choose(p, kernel), device_info(kPlanOnlyH200), constants);
}

TEST(Strips, WholeOnesAreWhatIsPredicted) {
  const ProductTime cut = time_of(144, "sm90 128x144"), whole = time_of(144, "sm90 128x192");
  EXPECT_DOUBLE_EQ(cut.l2, whole.l2);
  EXPECT_LT(cut.on_chip, whole.on_chip);
}

TEST(Strips, ThoseThatBeginWithinLinesTakeMoreOfThem) {
  EXPECT_GT(time_of(320, "sm90 128x80").l2, time_of(512, "sm90 128x128").l2) << "as many strips";
  EXPECT_DOUBLE_EQ(time_of(64, "sm90 128x80").l2, time_of(64, "sm90 128x128").l2) << "the first tile's do not";
}

}  // namespace
}  // namespace cleave

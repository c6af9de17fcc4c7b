#include "plan/choice/choice.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>
#include <string_view>

#include "all_kernels/typical_problems.h"
#include "cleave/config/clusters.h"
#include "cleave/config/scale_lines.h"
#include "cleave/config/staged_c.h"
#include "cleave/config/threads.h"
#include "cleave/device.h"
#include "cleave/epilogue.h"
#include "launch/gemm_grid.h"
#include "plan/catalogue/candidates.h"
#include "plan/choice/spec.h"

namespace cleave {
namespace {

GemmProblem scaled_by_block(uint32_t rows_of_a) {
  GemmProblem p;
  p.m = 2112;
  p.n = 4096;
  p.k = 512;
  p.a = {DType::e4m3, p.k, 1};
  p.b = {DType::e4m3, 1, p.k};
  p.c = p.d = {DType::bf16, p.n, 1};
  p.scale_a = {Scaling::block, rows_of_a, 1, p.m};
  p.scale_b = {Scaling::block, 128, 1, p.n};
  return p;
}

std::optional<Choice> choose(const GemmProblem& p, const char* spec) {
  return make_choice(p, device_info(kPlanOnlyH100), *parse_spec(spec));
}

// B has two columns for each of D's: with one column of D its stride counts all the same, and the ups
// begin where copies of 16 bytes need not.
TEST(Choice, UpsAreReadAsTheyLie) {
  GemmProblem p;
  p.m = 5;
  p.n = 1;
  p.k = 153;
  p.epilogue = epilogue_of(Activation::swiglu);
  p.a = {DType::f32, 156, 1};
  p.b = {DType::f32, 1, p.k};  // column by column
  p.c = p.d = {DType::f16, p.n, 1};
  auto choice = choose(p, "portable 64x64");
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->config.operands.load_bytes_b, 4u);
  p.b = {DType::f32, 4, 1};  // row by row
  choice = choose(p, "portable 64x64");
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->config.operands.b_major, Major::mn);
  EXPECT_EQ(choice->config.operands.load_bytes_b, 4u);
  p.n = 8;
  p.b = {DType::f32, 16, 1};
  choice = choose(p, "portable 64x64");
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->config.operands.load_bytes_b, 16u);
}

// Nor does TMA load from there.
TEST(Choice, TmaWantsUpsAtMultiplesOf16Bytes) {
  GemmProblem p;
  p.m = p.k = 128;
  p.epilogue = epilogue_of(Activation::swiglu);
  p.a = {DType::bf16, p.k, 1};
  for (const int64_t n : {1538, 1544}) {
    p.n = n;
    p.b = {DType::bf16, 3200, 1};  // row by row
    p.c = p.d = {DType::bf16, p.n, 1};
    EXPECT_EQ(choose(p, "sm90 64x128").has_value(), n % 8 == 0) << n;
    p.b = {DType::bf16, 1, p.k};  // column by column, each of which begins anywhere
    EXPECT_TRUE(choose(p, "sm90 64x128").has_value()) << n;
  }
}

TEST(Choice, TallTilesHaveThreeWarpgroups) {
  const auto choice = choose(scaled_by_block(1), "sm90 192x128");
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->config.warps.consumers, 3u);
  EXPECT_FALSE(promotes_two_parts(choice->config));
  EXPECT_EQ(producer_registers(choice->config) + 3 * consumer_registers(choice->config), 512u);
}

// A tile finds its scales from its first row on: 192 rows begin within a block of 128.
TEST(Choice, TallTilesNeedScalesOfSingleRows) {
  EXPECT_FALSE(choose(scaled_by_block(128), "sm90 192x128").has_value());
  EXPECT_FALSE(choose(scaled_by_block(1), "sm90 192x128 transposed").has_value());
  EXPECT_TRUE(choose(scaled_by_block(128), "sm90 256x128").has_value());
  EXPECT_TRUE(choose(scaled_by_block(128), "sm90 64x128").has_value());
}

// Others keep more sums in each thread.
// Three warpgroups leave each fewer registers than two.
TEST(Choice, TallTilesAreForPromotedSumsAndPlainProducts) {
  GemmProblem p = scaled_by_block(1);
  EXPECT_TRUE(choose(p, "sm90 192x128").has_value());
  p.scale_a = p.scale_b = {};
  p.fast_accumulation = true;
  EXPECT_FALSE(choose(p, "sm90 192x128").has_value()) << "8 bits";
  p.a.dtype = p.b.dtype = p.c.dtype = DType::bf16;
  EXPECT_TRUE(choose(p, "sm90 192x128").has_value());
  p.has_c = true;
  EXPECT_FALSE(choose(p, "sm90 192x128").has_value());
}

// Tiles are numbered with 31 bits.
TEST(Choice, WhatIsConsideredWaitsForNobody) {
  const DeviceInfo& h100 = device_info(kPlanOnlyH100);
  using namespace typical;
  const GemmProblem plain = product(DType::bf16, DType::bf16, DType::bf16);
  for (GemmProblem p :
       {plain, grouped(plain, Grouping::m), with_function(plain), weights(DType::bf16, DType::bf16, 128, true),
        typical::convolution(Conv::wgrad, DType::bf16, DType::f32, 2)}) {
    std::set<SplitKMode> modes;
    for (const Choice& choice : candidates(p, h100)) {
      modes.insert(choice.spec.split);
      EXPECT_FALSE(ctas_wait(choice.config)) << to_string(choice.spec);
    }
    EXPECT_GT(modes.size(), 1u);
    p.split_k_mode = SplitKMode::serial;
    EXPECT_FALSE(candidates(p, h100).empty()) << "on request";
  }
}

TEST(Choice, NobodyCutsAProductIntoMoreTilesThanAreCounted) {
  GemmProblem p;
  p.m = 1;
  p.n = 33;
  p.k = 64;
  p.batch = std::numeric_limits<int32_t>::max();
  p.epilogue = epilogue_of(Activation::swiglu);
  p.a = {DType::bf16, p.k, 1, p.k};
  p.b = {DType::bf16, 1, p.k, 2 * p.n * p.k};
  p.c = p.d = {DType::bf16, p.n, 1, p.n};
  ASSERT_TRUE(validate(p).empty());
  EXPECT_FALSE(choose(p, "sm90 64x32").has_value()) << "three tiles of 16 columns each";
  EXPECT_TRUE(choose(p, "sm90 64x128").has_value());
  const std::vector<Choice> all = candidates(p, device_info(kPlanOnlyH100));
  ASSERT_FALSE(all.empty());
  for (const Choice& choice : all)
    EXPECT_LE(choice.tiles * sharers(choice.config) * choice.spec.slices, double(p.batch)) << to_string(choice.spec);
}

TEST(Choice, StreamKCutsNoLineLongerThanIsCounted) {
  GemmProblem p;
  p.m = p.n = 20 * 128;
  p.k = std::numeric_limits<int32_t>::max() / 64 * 64;
  p.a = {DType::bf16, p.k, 1};
  p.b = {DType::bf16, 1, p.k};
  p.c = p.d = {DType::bf16, p.n, 1};
  p.split_k_mode = SplitKMode::stream_k;
  ASSERT_TRUE(validate(p).empty());
  EXPECT_FALSE(choose(p, "sm90 128x128 stream_k 1").has_value()) << "136 tiles of 2^25 k blocks";
  p.m = p.n = 128;
  EXPECT_TRUE(choose(p, "sm90 128x128 stream_k 1").has_value());
}

/// Groups of K, which are added to float32.
GemmProblem added_gradients(DType type) {
  using namespace typical;
  const bool scaled = size_of(type) == 1;
  const Major major = scaled ? Major::k : Major::mn;
  GemmProblem p = grouped(product(type, type, DType::f32, major, major), Grouping::k);
  p.has_c = true;
  if (!scaled) return p;
  p.scale_a = p.scale_b = kLines;
  p.groups.bounds = GroupBounds::aligned_ends;
  p.groups.spacing = 128;
  return p;
}

bool stages_c(const GemmProblem& p, const char* spec) {
  const auto choice = choose(p, spec);
  return choice.has_value() && stages_c(choice->config);
}

bool adds(const GemmProblem& p, const char* spec) {
  const auto choice = choose(p, spec);
  return choice.has_value() && choice->config.store.adds;
}

TEST(Choice, WholeWordsOfCComeThroughSharedMemory) {
  for (const DType type : {DType::e4m3, DType::bf16}) {
    const GemmProblem p = added_gradients(type);
    for (const char* spec : {"sm90 64x64", "sm90 128x128", "sm90 128x128 multicast 2x1", "sm90 128x192"}) {
      EXPECT_TRUE(stages_c(p, spec)) << spec;
      EXPECT_GE(choose(p, spec)->config.tile.stages, 3u) << spec;
    }
    for (const char* spec : {"sm90 128x128 stream_k 1", "sm90 128x128 transposed", "sm90 256x128", "portable 64x64"}) {
      ASSERT_TRUE(choose(p, spec).has_value()) << spec;
      EXPECT_FALSE(stages_c(p, spec)) << spec;
    }
    for (const int64_t groups : {16, 256, 1024}) {  // their bounds are in shared memory, too
      GemmProblem q = p;
      q.batch = groups;
      for (const char* spec : {"sm90 128x128", "sm90 128x192", "sm90 256x96"}) {
        if (size_of(type) == 2 && spec == std::string_view("sm90 256x96")) continue;  // no whole strips
        const auto choice = choose(q, spec);
        ASSERT_TRUE(choice.has_value()) << spec << ", " << groups << " groups";
        EXPECT_EQ(choice->config.epilogue.c_words, stages_c(choice->config)) << spec;
        EXPECT_GE(choice->config.tile.stages, 3u) << spec;
      }
    }
    const auto other = [&](auto change) {
      GemmProblem q = p;
      change(q);
      return stages_c(q, "sm90 128x128");
    };
    EXPECT_TRUE(other([](GemmProblem& q) { q.c.stride_row += 4; }));
    EXPECT_FALSE(other([](GemmProblem& q) { q.c.stride_row += 2; }));
    EXPECT_FALSE(other([](GemmProblem& q) { q.c.stride_batch += 2; }));
    EXPECT_FALSE(other([](GemmProblem& q) { q.c.alignment = 8; }));
    EXPECT_FALSE(other([](GemmProblem& q) { q.n -= 2; }));
    EXPECT_FALSE(other([](GemmProblem& q) { q.c.dtype = DType::bf16; }));
    EXPECT_FALSE(other([](GemmProblem& q) { q.has_c = false; }));
    EXPECT_FALSE(other([](GemmProblem& q) { q.bias = Bias::row; }));
    EXPECT_FALSE(other([](GemmProblem& q) { q.has_amax = true; }));
  }
}

TEST(Choice, TmaAddsSumsOfDeepGroupsAndWideTiles) {
  for (const DType type : {DType::e4m3, DType::bf16}) {
    GemmProblem p = added_gradients(type);
    const int64_t deep = 7 * 128 / int64_t(size_of(type)) * p.batch;
    p.k = deep - 1;
    EXPECT_TRUE(adds(p, "sm90 256x128"));
    EXPECT_FALSE(adds(p, "sm90 128x128"));
    p.k = deep;
    for (const char* spec : {"sm90 128x128", "sm90 128x128 multicast 2x1", "sm90 128x192", "sm90 256x128"}) {
      const auto choice = choose(p, spec);
      ASSERT_TRUE(choice.has_value()) << spec;
      EXPECT_TRUE(choice->config.store.adds) << spec;
      EXPECT_FALSE(choice->config.epilogue.c_words || stages_c(choice->config)) << spec;
      EXPECT_GE(choice->config.tile.stages, 3u) << spec;
    }
    EXPECT_EQ(adds(p, "sm90 128x152"), is_fp8(type));
    for (const char* spec : {"sm90 128x128 stream_k 1", "sm90 128x128 transposed", "sm90 64x64 cluster 2"}) {
      ASSERT_TRUE(choose(p, spec).has_value()) << spec;
      EXPECT_FALSE(adds(p, spec)) << spec;
    }
    EXPECT_TRUE(stages_c(p, "sm90 128x176") || size_of(type) == 2) << "no whole chunks: C is staged, as in others";
    const auto other = [&](auto change) {
      GemmProblem q = p;
      change(q);
      return adds(q, "sm90 128x128");
    };
    EXPECT_FALSE(other([](GemmProblem& q) { q.c.alignment = 8; }));
    EXPECT_FALSE(other([](GemmProblem& q) { q.d.alignment = 8; }));
    EXPECT_FALSE(other([](GemmProblem& q) { q.d.stride_row += 2; }));
    EXPECT_FALSE(other([](GemmProblem& q) { q.has_c = false; }));
    EXPECT_FALSE(other([](GemmProblem& q) { q.bias = Bias::row; }));
  }
  GemmProblem integers = added_gradients(DType::e4m3);
  integers.k = 7 * 128 * integers.batch;
  EXPECT_TRUE(choose(integers, "sm90 128x152").has_value());
  integers.a.dtype = integers.b.dtype = DType::i8;
  EXPECT_TRUE(adds(integers, "sm90 128x128"));
  EXPECT_FALSE(choose(integers, "sm90 128x152").has_value()) << "WGMMA has no such width of integers";
}

// What B is promised to be goes with it to A's place; a walk that takes the producer's registers has no use for it.
TEST(Choice, StaticOperandsAreLoadedEarly) {
  GemmProblem p;
  p.m = 64;
  p.n = p.k = 4096;
  p.a = {DType::e4m3, p.k, 1};
  p.b = {DType::e4m3, 1, p.k};
  p.c = p.d = {DType::bf16, p.n, 1};
  p.scale_a = p.scale_b = {.kind = Scaling::vector, .stride_row = 1};
  p.static_b = true;
  const auto early = [&](const char* spec) {
    const auto choice = choose(p, spec);
    EXPECT_TRUE(choice.has_value()) << spec;
    return choice ? std::pair(choice->config.operands.static_a, choice->config.operands.static_b)
                  : std::pair(true, true);
  };
  EXPECT_EQ(early("sm90 64x128"), std::pair(false, true));
  EXPECT_EQ(early("sm90 64x128 parallel 4"), std::pair(false, true));
  EXPECT_EQ(early("sm90 128x64 transposed"), std::pair(true, false));
  EXPECT_EQ(early("sm90 64x128 stream_k 1"), std::pair(false, false));
  EXPECT_EQ(early("sm90 64x128 multicast 1x2"), std::pair(false, true));
  EXPECT_EQ(early("sm90 64x128 transposed multicast 1x2"), std::pair(true, false));
  p.static_b = false;
  EXPECT_EQ(early("sm90 64x128"), std::pair(false, false));
}

}  // namespace
}  // namespace cleave

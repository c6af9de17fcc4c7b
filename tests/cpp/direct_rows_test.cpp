// Convolutions of one tap and few channels by tensor cores: which are served, by which tiles, and what that costs.

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "cleave/config/direct_work.h"
#include "cleave/config/smem_plan.h"
#include "conv_choice.h"
#include "expect_no_spills.h"
#include "jit/source.h"
#include "plan/catalogue/candidates.h"
#include "plan/direct/choice.h"
#include "plan/direct/rows.h"

namespace cleave {
namespace {

GemmProblem one_tap(int64_t channels, int64_t filters, Conv kind, int64_t images = 7, const ConvAxis& axis = {56}) {
  const ConvLayout conv{
      .kind = kind, .images = images, .channels = channels, .filters = filters, .axes = {kNone, axis, axis}};
  return implicit_gemm(conv, 1, DType::f16, DType::f16);
}

std::vector<Choice> rows_choices(const GemmProblem& p) {
  std::vector<Choice> found;
  const auto spec = direct_rows_spec(p, h100());
  if (!spec) return found;
  for (const uint32_t m : {128, 256}) {
    Spec other = *spec;
    other.tile_m = m;
    const auto choice = make_choice(p, h100(), other);
    if (choice && choice->config.direct.method == DirectMethod::rows) found.push_back(*choice);
  }
  return found;
}

TEST(DirectRows, CoversAllPixelsAndChannels) {
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
    for (const int64_t depth : {8, 16, 24, 40, 72, 144, 192}) {
      for (const int64_t columns : {8, 24, 40, 144, 296, 1024}) {
        const bool back = kind == Conv::dgrad;
        const GemmProblem p = one_tap(back ? columns : depth, back ? depth : columns, kind);
        for (const Choice& choice : rows_choices(p)) {
          SCOPED_TRACE(to_string(choice.spec));
          const GemmConfig& c = choice.config;
          const DirectShape shape = direct_shape(choice);
          EXPECT_EQ(shape.blocks.divisor * c.tile.n, columns);
          EXPECT_EQ(choice.blocks % shape.blocks.divisor, 0u);  // a CTA's filters stay
          EXPECT_GE(int64_t(choice.most_tiles) * c.tile.m, p.m * shape.blocks.divisor);
          EXPECT_LE(choice.blocks, choice.most_tiles);
          EXPECT_GE(rows_parts(c) * rows_part(c), c.tile.n);
          EXPECT_GE(rows_depths(c) * kRowsDepth, depth);
          EXPECT_EQ(rows_eights(c) * 8 * (kDirectThreads / 32), c.tile.m);
        }
      }
    }
  }
}

/// As chosen for an H200, whose times the model was fitted to.
bool takes_rows(const GemmProblem& p) {
  static const DeviceInfo h200 = device_info(kPlanOnlyH200);
  return cheapest(p, h200, Kernels::all).choice->config.direct.method == DirectMethod::rows;
}

TEST(DirectRows, IsChosenForFewChannels) {
  EXPECT_TRUE(takes_rows(one_tap(24, 144, Conv::fprop)));
  EXPECT_TRUE(takes_rows(one_tap(144, 24, Conv::dgrad)));  // gathers 24, too
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) EXPECT_FALSE(takes_rows(one_tap(512, 512, kind)));
}

TEST(DirectRows, IsChosenWhereItWasFaster) {
  const auto forward = [](int64_t images, int32_t size, int64_t channels, int64_t filters) {
    return takes_rows(one_tap(channels, filters, Conv::fprop, images, {size}));
  };
  const auto back = [](int64_t images, int32_t size, int64_t channels, int64_t filters) {
    return takes_rows(one_tap(channels, filters, Conv::dgrad, images, {size}));
  };
  EXPECT_TRUE(forward(230, 95, 48, 24));
  EXPECT_TRUE(forward(44, 55, 96, 16));
  EXPECT_TRUE(forward(64, 112, 16, 96));
  EXPECT_TRUE(forward(64, 28, 32, 192));
  EXPECT_TRUE(forward(64, 112, 32, 16));
  EXPECT_FALSE(forward(64, 47, 192, 32));
  EXPECT_FALSE(forward(64, 56, 64, 256));
  EXPECT_FALSE(forward(64, 28, 144, 40));
  EXPECT_FALSE(forward(7, 47, 144, 32));
  EXPECT_TRUE(back(10, 95, 48, 24));
  EXPECT_TRUE(back(64, 56, 96, 24));
  EXPECT_TRUE(back(5, 112, 16, 96));
  EXPECT_TRUE(back(64, 112, 32, 16));
  EXPECT_FALSE(back(82, 28, 144, 40));
  EXPECT_FALSE(back(64, 28, 192, 64));
  EXPECT_FALSE(back(64, 28, 32, 192));
}

TEST(DirectRows, SpillsNothing) {
  std::set<std::string> sources;
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
    for (const int64_t few : {24, 64, 168, 192}) {
      for (const int64_t many : {40, 256}) {
        for (const Choice& choice : rows_choices(one_tap(few, many, kind))) sources.insert(gemm_source(choice.config));
      }
    }
  }
  EXPECT_GT(sources.size(), 12u);
  for (const char* arch : {"sm_80", "sm_90a"}) expect_no_spills(sources, arch, 128);
}

TEST(DirectRows, LeavesTheRest) {
  const auto is_served = [](const GemmProblem& p) { return !rows_choices(p).empty(); };
  EXPECT_TRUE(is_served(one_tap(24, 144, Conv::fprop)));
  EXPECT_FALSE(is_served(one_tap(24, 144, Conv::wgrad)));
  EXPECT_FALSE(is_served(one_tap(20, 144, Conv::fprop)));
  EXPECT_FALSE(is_served(one_tap(24, 100, Conv::fprop)));
  EXPECT_FALSE(is_served(one_tap(512, 64, Conv::fprop)));
  EXPECT_FALSE(is_served(one_tap(64, 512, Conv::dgrad)));
  EXPECT_FALSE(is_served(one_tap(24, 144, Conv::fprop, 7, {.size = 56, .stride = 2})));
  EXPECT_FALSE(is_served(one_tap(24, 144, Conv::fprop, 7, {.size = 56, .pad_begin = 1})));
  GemmProblem floats = one_tap(24, 144, Conv::fprop);
  floats.a.dtype = floats.b.dtype = DType::f32;
  EXPECT_FALSE(is_served(floats));
  GemmProblem split = one_tap(24, 144, Conv::fprop);
  split.split_k_slices = 2;
  EXPECT_FALSE(is_served(split));
}

}  // namespace
}  // namespace cleave

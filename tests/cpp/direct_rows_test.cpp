// Convolutions of one tap and few channels by tensor cores: which are served, by which tiles, and what that costs.

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "cleave/config/smem_plan.h"
#include "conv_choice.h"
#include "expect_no_spills.h"
#include "jit/source.h"
#include "plan/catalogue.h"
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
  for (const uint32_t m : {128, 256, 512}) {
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

TEST(DirectRows, IsChosenForFewChannels) {
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
    const Choice choice = *cheapest(one_tap(24, 144, kind), h100(), Kernels::all).choice;
    EXPECT_EQ(choice.config.direct.method, DirectMethod::rows);
    EXPECT_NE(cheapest(one_tap(512, 512, kind), h100(), Kernels::all).choice->config.family, KernelFamily::direct);
  }
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

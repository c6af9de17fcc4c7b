// Convolutions of few channels by windows: that each element of K is what the definition says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cleave/config/direct_work.h"
#include "cleave/config/smem_plan.h"
#include "cleave/conv/direct_conv.h"
#include "conv_geometry.h"
#include "direct_slices.h"
#include "expect_no_spills.h"
#include "few_channels.h"
#include "jit/source.h"
#include "plan/catalogue/candidates.h"
#include "plan/direct/choice.h"

namespace cleave {
namespace {

TEST(DirectWindows, EachElementOfKIsWhatTheDefinitionSays) {
  Random random(2);
  int served = 0;
  for (int round = 0; round < 500; ++round) {
    ConvAxis height = draw_axis(random, 4), width = draw_axis(random, 4);
    width.dilation = 1;
    const GemmProblem p = few_channels(random.number(1, 16), random.number(1, 150), height, width);
    const auto choice = direct_choice(p, DirectMethod::windows);
    if (!choice) continue;
    ++served;
    SCOPED_TRACE(text(p.conv));
    const GemmConfig& c = choice->config;
    const DirectConfig& d = c.direct;
    const DirectShape shape = direct_shape(*choice);
    EXPECT_EQ(shape.tiles, shape.blocks.divisor * shape.columns.divisor * shape.rows.divisor * 3);
    EXPECT_EQ(choice->blocks % shape.blocks.divisor, 0u);  // a CTA's filters stay
    EXPECT_GE(shape.blocks.divisor * c.tile.n, shape.channels);
    EXPECT_GE(shape.rows.divisor * window_rows(c), shape.made[0]);
    const uint32_t width_of_cta = d.strips * kWindowStrip;
    EXPECT_GE(shape.columns.divisor * width_of_cta, shape.made[1]);
    const int64_t across = int64_t(d.width.taps) * d.vector;
    for (uint32_t column = 0; column < shape.made[1]; ++column) {
      const uint32_t first = column / width_of_cta * width_of_cta;
      const int64_t word0 = window_first_word(d, first, shape.pad[1]);
      std::vector<bool> met(size_t(d.height.taps * across), false);
      for (uint32_t k = 0; k < window_depth(d); ++k) {
        const int32_t element = filter_element(d, k);
        if (element < 0) continue;
        EXPECT_FALSE(met[size_t(element)]);
        met[size_t(element)] = true;
        EXPECT_EQ(k / window_run(d), uint32_t(element / across));  // the filter's line
        // Elements of the image's line: that which the kernel reads, and that which the tap meets.
        const int64_t in_stage = int64_t(column - first) * window_step(d) + k % window_run(d);
        EXPECT_LT(in_stage, 2 * int64_t(window_words(c)));
        EXPECT_EQ(2 * word0 + in_stage,
                  (int64_t(column) * d.width.stride - shape.pad[1]) * d.vector + element % across);
      }
      EXPECT_EQ(std::ranges::count(met, true), int64_t(met.size()));
    }
    EXPECT_GT(window_lines(c), (window_rows(c) - 1) * d.height.stride + (d.height.taps - 1) * d.height.dilation);
  }
  EXPECT_GT(served, 100);
}

TEST(DirectWindows, DataGradientsAreConvolutionsByFiltersTurnedRound) {
  Random random(4);
  int served = 0;
  for (int round = 0; round < 500; ++round) {
    const ConvAxis depth = round % 2 == 0 ? kNone : draw_axis(random, 1), height = draw_axis(random, 1);
    ConvAxis width = draw_axis(random, 1);
    width.dilation = 1;
    const GemmProblem p = few_channels(random.number(1, 150), random.number(1, 16), height, width, Conv::dgrad, depth);
    const auto choice = direct_choice(p, DirectMethod::windows);
    if (!choice) continue;
    ++served;
    SCOPED_TRACE(text(p.conv));
    const DirectShape shape = direct_shape(*choice);
    EXPECT_EQ(shape.channels, uint32_t(p.conv.channels));
    EXPECT_EQ(choice->config.direct.vector, uint32_t(p.conv.filters));
    EXPECT_EQ(choice->config.direct.width.phase, uint32_t(std::abs(shape.pad[1]) * p.conv.filters % 2));
    const DirectConfig& d = choice->config.direct;
    for (const uint32_t i : {0u, 1u, 2u}) {
      const DirectAxis& of = i == 0 ? d.depth : i == 1 ? d.height : d.width;
      const int32_t pad = i == 0 ? shape.pad_depth : shape.pad[i - 1];
      const uint32_t all = i == 0 ? shape.depths.divisor : shape.made[i - 1];
      const uint32_t gathered = i == 0 ? shape.met_depth : shape.gathered[i - 1];
      const ConvLayout line{.kind = p.conv.kind, .images = 1, .axes = {kNone, kNone, p.conv.axes[i]}};
      std::map<std::pair<int64_t, int64_t>, int64_t> wanted;
      for_each_meeting(line, [&](int64_t x, int64_t tap, int64_t y) { wanted[{x, tap}] = y; });
      size_t met = 0;
      for (uint32_t made = 0; made < all; ++made) {
        for (uint32_t tap = 0; tap < of.taps; ++tap) {
          const int32_t at = of.map(pad).at(made, tap);
          if (!is_inside(at, gathered)) continue;
          const auto found = wanted.find({made, of.taps - 1 - tap});
          ASSERT_NE(found, wanted.end());
          EXPECT_EQ(found->second, at);
          ++met;
        }
      }
      EXPECT_EQ(met, wanted.size());
    }
  }
  EXPECT_GT(served, 100);
}

TEST(DirectWindows, AThreadsColumnsAreNeighbours) {
  const ConvAxis axis{.size = 64, .filter = 3, .pad_begin = 1, .pad_end = 1};
  for (const int64_t filters : {16, 24, 48, 64, 96}) {
    const GemmConfig c = direct_choice(few_channels(3, filters, axis, axis), DirectMethod::windows)->config;
    EXPECT_TRUE(deals_windows(c));
    for (uint32_t first = 0; first < c.tile.n; first += 32) {
      const uint32_t blocks = std::min(c.tile.n - first, 32u) / 8;
      for (uint32_t thread = 0; thread < 4; ++thread) {
        for (uint32_t i = 0; i < blocks * 2; ++i)  // as mma.sync deals columns: two of each block
          EXPECT_EQ(window_filter_row(c, first + thread * blocks * 2 + i), first + i / 2 * 8 + thread * 2 + i % 2);
      }
    }
  }
  GemmProblem with_c = few_channels(3, 64, axis, axis);
  with_c.has_c = true;
  EXPECT_FALSE(deals_windows(direct_choice(with_c, DirectMethod::windows)->config));
  EXPECT_FALSE(deals_windows(direct_choice(few_channels(3, 60, axis, axis), DirectMethod::windows)->config));
}

TEST(DirectWindows, SpillsNothing) {
  const ConvAxis plain{.size = 64, .filter = 3, .pad_begin = 1, .pad_end = 1};
  std::set<std::string> sources;
  for (const int64_t filters : {3, 8, 12, 16}) {
    const GemmProblem p = few_channels(320, filters, plain, plain, Conv::dgrad);
    sources.insert(gemm_source(direct_choice(p, DirectMethod::windows)->config));
  }
  sources.insert(
      gemm_source(direct_choice(few_channels(96, 3, plain, plain, Conv::dgrad, plain), DirectMethod::windows)->config));
  EXPECT_EQ(sources.size(), 5u);
  for (const char* arch : {"sm_80", "sm_90a"}) expect_no_spills(sources, arch, 128);
}

TEST(DirectWindows, GradientsSpillNothing) {
  const ConvAxis stem{.size = 224, .filter = 7, .stride = 2, .pad_begin = 3, .pad_end = 3};
  const ConvAxis plain{.size = 64, .filter = 3, .pad_begin = 1, .pad_end = 1};
  std::vector<Choice> choices;
  for (const GemmProblem& p :
       {few_channels(3, 64, stem, stem, Conv::wgrad), few_channels(3, 24, plain, plain, Conv::wgrad),
        few_channels(1, 32, stem, stem, Conv::wgrad), few_channels(4, 48, plain, plain, Conv::wgrad)})
    choices.push_back(*direct_choice(p, DirectMethod::windows));
  expect_no_spills(choices, 4);
}

TEST(DirectWindows, WarpsHaveEachElementOfAFilter) {
  Random random(3);
  int served = 0;
  for (int round = 0; round < 500; ++round) {
    ConvAxis height = draw_axis(random, 4), width = draw_axis(random, 4);
    width.dilation = 1;
    GemmProblem p = few_channels(random.number(1, 4), 8 * random.number(1, 20), height, width, Conv::wgrad);
    p.split_k_slices = random.number(0, 40);
    const auto choice = direct_choice(p, DirectMethod::windows);
    if (!choice) continue;
    ++served;
    SCOPED_TRACE(text(p.conv));
    const GemmConfig& c = choice->config;
    EXPECT_GE(c.warps.m * window_row_blocks(c) * 16, window_depth(c.direct));
    EXPECT_EQ(c.warps.m * c.warps.k * 32, kDirectThreads);
    const DirectShape shape = direct_shape(*choice);
    const uint32_t blocks = shape.blocks.divisor;
    EXPECT_GE(blocks * c.tile.n, shape.channels);
    EXPECT_EQ(choice->blocks, blocks * choice->spec.slices);
    EXPECT_LE(choice->spec.slices, shape.tiles / blocks);  // a tile for each
    EXPECT_EQ(window_rows(c) * c.direct.strips * kWindowStrip, c.tile.m);
    EXPECT_LE(direct_made(c) * sizeof(float), smem_plan(c).bytes);
    EXPECT_EQ(choice->partial_bytes > 0, choice->spec.slices > choice->spec.cluster_k);
  }
  EXPECT_GT(served, 100);
}

TEST(DirectWindows, IsChosenForFirstLayers) {
  const ConvAxis seven{.size = 224, .filter = 7, .stride = 2, .pad_begin = 3, .pad_end = 3};
  GemmProblem p = few_channels(3, 64, seven, seven);
  p.conv.images = 64;
  p = implicit_gemm(p.conv, 1, DType::bf16, DType::bf16);
  const auto family = [&] { return cheapest(p, h100(), Kernels::all).choice->config.family; };
  EXPECT_EQ(family(), KernelFamily::direct);
  p.kernel = KernelFamily::sm90;
  EXPECT_EQ(family(), KernelFamily::sm90);
  p.conv.kind = Conv::wgrad;
  p = implicit_gemm(p.conv, 1, DType::f16, DType::f16);
  EXPECT_EQ(family(), KernelFamily::direct);
}

TEST(DirectWindows, LeavesTheRest) {
  const ConvAxis axis{.size = 32, .filter = 3, .pad_begin = 1, .pad_end = 1};
  ConvAxis odd = axis, dilated = axis, large = axis, strided = axis;
  strided.stride = 2;
  odd.size = 33;
  dilated.dilation = 2;
  large.filter = 20;
  const auto is_served = [](const GemmProblem& p) { return bool(cheapest(p, h100(), Kernels::all).choice); };
  EXPECT_TRUE(is_served(few_channels(3, 64, axis, axis)));
  EXPECT_TRUE(is_served(few_channels(3, 64, dilated, axis)));
  EXPECT_TRUE(is_served(few_channels(3, 64, odd, axis)));
  EXPECT_FALSE(is_served(few_channels(3, 64, axis, odd)));
  EXPECT_TRUE(is_served(few_channels(4, 64, axis, odd)));
  EXPECT_FALSE(is_served(few_channels(3, 64, axis, dilated)));
  EXPECT_TRUE(is_served(few_channels(16, 320, axis, axis)));
  EXPECT_FALSE(is_served(few_channels(17, 320, axis, axis)));
  EXPECT_TRUE(is_served(few_channels(320, 3, axis, axis, Conv::dgrad)));
  EXPECT_FALSE(is_served(few_channels(320, 3, axis, strided, Conv::dgrad)));
  EXPECT_FALSE(is_served(few_channels(320, 3, axis, odd, Conv::dgrad)));
  EXPECT_FALSE(is_served(few_channels(4, 64, large, large)));
  // Sizes whose bytes of shared memory are beyond 32 bits.
  ConvAxis apart = axis, padded{.size = 2, .filter = 1 << 15, .pad_begin = 1 << 15, .pad_end = 1 << 15};
  apart.stride = 1 << 30;
  EXPECT_FALSE(is_served(few_channels(4, 64, axis, apart)));
  EXPECT_FALSE(is_served(few_channels(4, 64, padded, padded)));
  ConvAxis far{.size = 2, .filter = 2, .pad_begin = 1 << 29, .pad_end = 1 << 29, .dilation = 1 << 30};
  EXPECT_FALSE(is_served(few_channels(4, 64, far, axis)));
  GemmProblem gaps = few_channels(3, 64, axis, axis);
  gaps.a.stride_row = 4;
  EXPECT_FALSE(is_served(gaps));
  GemmProblem split = few_channels(3, 64, axis, axis);
  split.split_k_slices = 2;
  EXPECT_FALSE(is_served(split));
}

}  // namespace
}  // namespace cleave

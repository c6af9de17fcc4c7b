// Convolutions pixel by pixel: that strips and taps meet what the definition says, each once, wherever a strip begins.

#include "cleave/conv/direct_conv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "all_kernels/typical_problems.h"
#include "cleave/config/direct_pixels.h"
#include "cleave/config/direct_work.h"
#include "cleave/names.h"
#include "conv_choice.h"
#include "conv_geometry.h"
#include "plan/catalogue/candidates.h"
#include "plan/catalogue/listed.h"
#include "plan/direct/choice.h"
#include "plan/direct/kernels.h"
#include "plan/direct/wgrad.h"

namespace cleave {
namespace {

DirectAxis axis_of(Conv kind, const ConvAxis& axis) {
  return {.taps = uint32_t(axis.filter),
          .stride = uint32_t(axis.stride),
          .dilation = uint32_t(axis.dilation),
          .phase = kind == Conv::dgrad ? uint32_t(axis.pad_begin % axis.stride) : 0};
}

TEST(DirectConv, StripsMeetWhatTheDefinitionSays) {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    const Conv kind = random.coin() ? Conv::fprop : Conv::dgrad;  // wgrad's pixels are fprop's
    const ConvAxis axis = draw_axis(random, 4);
    ConvLayout conv{.kind = kind, .images = 1, .axes = {kNone, kNone, axis}};
    if (output_pixels(conv) == 0) continue;
    SCOPED_TRACE(text(conv));
    const DirectAxis of = axis_of(kind, axis);
    const auto strip = uint32_t(kind == Conv::dgrad ? axis.stride * random.number(1, 3) : random.number(1, 8));
    const GatheredSpan span = gathered_span(kind, of, strip);
    // Which pixel of the image meets which output by which tap.
    std::map<std::pair<int64_t, int64_t>, int64_t> wanted;
    for_each_meeting(conv, [&](int64_t x, int64_t tap, int64_t y) {
      kind == Conv::fprop ? wanted[{y, tap}] = x : wanted[{x, tap}] = y;
    });
    const int64_t made = kind == Conv::fprop ? outputs(axis) : axis.size;
    const int64_t gathered = kind == Conv::fprop ? axis.size : outputs(axis);
    for (uint32_t begin = 0; begin < made; begin += strip) {
      const int64_t first = first_gathered(kind, of, begin, axis.pad_begin);
      for (uint32_t j = 0; j < strip && begin + j < made; ++j) {
        for (uint32_t tap = 0; tap < of.taps; ++tap) {
          const int32_t way = gathered_at(kind, of, j, tap);
          const auto found = wanted.find({begin + j, tap});
          const int64_t there = gathered_at(kind, of.map(axis.pad_begin), begin + j, tap);  // without a strip
          ASSERT_EQ(there, way == kApart ? kApart : first + way);
          if (way == kApart || first + way < 0 || first + way >= gathered) {
            ASSERT_EQ(found, wanted.end()) << begin + j << " at tap " << tap;
            continue;
          }
          ASSERT_GE(way, span.first);
          ASSERT_LE(way, span.last);
          ASSERT_NE(found, wanted.end()) << begin + j << " at tap " << tap;
          ASSERT_EQ(found->second, first + way);
        }
      }
    }
  }
}

TEST(DirectConv, EachCtaHasAPlaceOfItsOwn) {
  DirectShape shape;
  shape.blocks = FastDivmod(3), shape.columns = FastDivmod(5), shape.rows = FastDivmod(7);
  for (uint32_t cta = 0; cta < 3 * 5 * 7 * 2; ++cta) {
    const DirectTile at = locate(shape, cta);
    EXPECT_EQ(((at.image * 7 + at.row) * 5 + at.column) * 3 + at.channel, cta);
    EXPECT_TRUE(at.channel < 3 && at.column < 5 && at.row < 7);
  }
}

TEST(DirectConv, PixelsAreNumberedLineByLine) {
  const uint32_t size[] = {3, 4};
  uint32_t number = 0;
  for (uint32_t image = 0; image < 2; ++image) {
    for (uint32_t line = 0; line < size[0]; ++line)
      for (uint32_t column = 0; column < size[1]; ++column)
        EXPECT_EQ(pixel_number(image, line, column, size), number++);
  }
  EXPECT_EQ(pixel_number(int64_t(0), 0, -2, size), -2) << "before the line";
  EXPECT_EQ(pixel_number(int64_t(1) << 31, 2u, 3u, size), (int64_t(12) << 31) + 11);
}

GemmProblem depthwise(Conv kind, int32_t taps, int32_t stride, int64_t channels, int64_t group = 1, int32_t size = 56) {
  const ConvAxis axis{.size = size, .filter = taps, .stride = stride, .pad_begin = taps / 2, .pad_end = taps / 2};
  const ConvLayout conv{.kind = kind, .images = 8, .channels = group, .filters = group, .axes = {kNone, axis, axis}};
  GemmProblem p = implicit_gemm(conv, channels / group, DType::bf16, DType::bf16);
  p.kernel = KernelFamily::direct;
  return p;
}

/// Pixel by pixel, not down the images.
std::optional<Choice> pixels_choice(const GemmProblem& p) {
  for (const Spec& spec : direct_specs(p, h100()))
    if (spec.columns == 0) return make_choice(p, h100(), spec);
  return std::nullopt;
}

/// Or `cleave tune` could not store them.
TEST(DirectConv, WhatSuitsAProblemMayBeTuned) {
  bool at_once = false, ahead = false, together = false;
  for (const Conv kind : {Conv::fprop, Conv::dgrad, Conv::wgrad}) {
    for (const int32_t taps : {3, 7}) {
      for (const int32_t size : {7, 14, 56}) {
        for (const int64_t group : {1, 2, 32}) {
          for (const Spec& spec : direct_specs(depthwise(kind, taps, 1, 256, group, size), h100())) {
            EXPECT_TRUE(is_listed(spec)) << to_string(spec);
            at_once |= spec.at_once, ahead |= spec.ahead > 0, together |= spec.cluster_k > 1;
          }
        }
      }
    }
  }
  EXPECT_TRUE(at_once && ahead && together);
}

TEST(DirectConv, WordsOfOtherKernelsAreRefused) {
  const GemmProblem p = depthwise(Conv::wgrad, 3, 1, 256, 32, 14);
  ASSERT_TRUE(make_choice(p, h100(), *parse_spec("direct 256x32 parallel 4")));
  for (const char* word : {"narrow", "gather", "half_lines", "transposed", "pingpong", "at_once", "ahead 2"})
    EXPECT_FALSE(make_choice(p, h100(), *parse_spec(std::string("direct 256x32 ") + word + " parallel 4"))) << word;
  GemmProblem product = typical::product(DType::bf16, DType::bf16, DType::bf16);
  ASSERT_TRUE(make_choice(product, h100(), *parse_spec("sm90 64x64")));
  for (const char* word : {"at_once", "ahead 2", "columns 4"})
    EXPECT_FALSE(make_choice(product, h100(), *parse_spec(std::string("sm90 64x64 ") + word))) << word;
}

TEST(DirectConv, ServesNarrowGroups) {
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
    for (const int64_t group : {1, 2, 4}) {
      for (const int32_t stride : {1, 2, 3}) {
        const GemmProblem p = depthwise(kind, 3, stride, 96, group, 28);
        const Cheapest best = cheapest(p, h100(), Kernels::all);
        ASSERT_TRUE(best.choice.has_value()) << to_string(kind) << group << stride;
        EXPECT_EQ(best.choice->config.family, KernelFamily::direct);
        const auto choice = pixels_choice(p);
        EXPECT_EQ(choice.has_value(), stride == 1) << to_string(kind) << group << stride;
        if (!choice) continue;
        const GemmConfig& c = choice->config;
        EXPECT_EQ(choice->problem.n, 96);
        EXPECT_EQ(c.direct.group, uint32_t(group));
        EXPECT_EQ(c.direct.vector, 4u);
        EXPECT_LE(c.tile.n / c.direct.vector * c.direct.strips * direct_lines(c), kDirectThreads);
        const DirectShape shape = direct_shape(*choice);
        EXPECT_GE(shape.blocks.divisor * c.tile.n, 96u);
        EXPECT_GE(shape.columns.divisor * c.direct.strips * c.tile.m, shape.made[1]);
        EXPECT_GE(shape.rows.divisor * shape.steps * direct_lines(c), shape.made[0]);
      }
    }
  }
}

TEST(DirectConv, StagesWhatACtasLinesMeet) {
  Random random(7);
  int staged = 0;
  for (int round = 0; round < 300; ++round) {
    const Conv kind = random.coin() ? Conv::fprop : Conv::dgrad;
    const ConvAxis height = draw_axis(random, 1), width = draw_axis(random, 1);
    const ConvLayout conv{.kind = kind, .images = 2, .channels = 1, .filters = 1, .axes = {kNone, height, width}};
    GemmProblem p = implicit_gemm(conv, 48, DType::f16, DType::f16);
    p.kernel = KernelFamily::direct;
    const auto choice = pixels_choice(p);
    if (!choice || choice->blocks == 0 || choice->config.direct.pixels == 0) continue;
    SCOPED_TRACE(text(conv));
    ++staged;
    const GemmConfig& c = choice->config;
    const DirectShape shape = direct_shape(*choice);
    EXPECT_EQ(c.direct.pixels, staged_lines(c) * staged_columns(c));
    for (uint32_t line0 = 0; line0 < shape.made[0]; line0 += direct_lines(c)) {
      const int32_t first = staged_first(kind, c.direct.height, line0, shape.pad[0]);
      for (uint32_t line = line0; line < std::min(line0 + direct_lines(c), shape.made[0]); ++line) {
        for (uint32_t tap = 0; tap < c.direct.height.taps; ++tap) {
          const int32_t y = gathered_at(kind, c.direct.height.map(shape.pad[0]), line, tap);
          if (!is_inside(y, shape.gathered[0])) continue;
          EXPECT_GE(y, first);
          EXPECT_LT(y, first + int32_t(staged_lines(c)));
        }
      }
    }
    for (uint32_t strip = 0; strip < c.direct.strips; ++strip) {
      const int32_t way = first_gathered(kind, c.direct.width, strip * c.tile.m, shape.pad[1]) -
                          first_gathered(kind, c.direct.width, 0, shape.pad[1]);
      EXPECT_EQ(way, int32_t(strip * strip_step(c)));
      EXPECT_LE(uint32_t(way) + gathered_span(kind, c.direct.width, c.tile.m).size(), staged_columns(c));
    }
  }
  EXPECT_GT(staged, 100);
}

TEST(DirectConv, StagesShortLinesOnly) {
  const auto staged = [](Conv kind, int32_t size, int32_t stride) {
    const ConvAxis axis{.size = size, .filter = 3, .stride = stride, .pad_begin = 1, .pad_end = 1};
    GemmProblem p = implicit_gemm({.kind = kind, .images = 2, .channels = 1, .filters = 1, .axes = {kNone, axis, axis}},
                                  64, DType::f16, DType::f16);
    p.kernel = KernelFamily::direct;
    const auto choice = pixels_choice(p);
    return choice && choice->config.direct.pixels > 0;
  };
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
    EXPECT_TRUE(staged(kind, 28, 1));
    EXPECT_FALSE(staged(kind, 47, 1));
  }
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) EXPECT_FALSE(staged(kind, 28, 2));
}

TEST(DirectConv, SlicesOfWeightGradientsHaveEveryLineOnce) {
  for (const int64_t group : {1, 2, 4}) {
    for (const int32_t taps : {3, 5, 7}) {
      for (const int32_t slices : {0, 1, 7, 100}) {
        GemmProblem p = depthwise(Conv::wgrad, taps, 1, 160, group, 19);
        if (slices > 0) p.split_k_slices = slices;
        const std::optional<Spec> spec = direct_wgrad_spec(p, h100());
        EXPECT_EQ(spec.has_value(), group * taps * group <= 80) << group << " " << taps << " " << slices;
        if (!spec) continue;
        const Choice choice = make_direct_wgrad_choice(p, h100(), *spec).value();
        const GemmConfig& c = choice.config;
        const DirectShape shape = direct_wgrad_shape(choice);
        EXPECT_EQ(shape.channels, 160u);
        EXPECT_EQ(shape.lines, 8u * 19);
        const uint32_t found = choice.blocks / shape.blocks.divisor;
        EXPECT_EQ(found, choice.spec.slices);
        if (slices > 0) {
          EXPECT_EQ(found, ceil_div(shape.lines, ceil_div(shape.lines, uint32_t(slices))));
        }
        EXPECT_GE(found * shape.steps, shape.lines);
        EXPECT_LT((found - choice.spec.cluster_k) * shape.steps, shape.lines);
        EXPECT_GE(shape.columns.divisor * c.tile.m, shape.made[1]);
        EXPECT_GE(shape.blocks.divisor * c.tile.n, shape.channels);
        EXPECT_LE(direct_places(c) * c.direct.height.taps * c.tile.n / c.direct.vector, kDirectThreads);
        EXPECT_EQ(choice.workspace_bytes() > 0, found > choice.spec.cluster_k);
        EXPECT_EQ(choice.spec.split, found > 1 ? SplitKMode::parallel : SplitKMode::none);
      }
    }
  }
}

TEST(DirectConv, WeightGradientsThatReachFarHaveShortStrips) {
  const auto strip = [](const ConvAxis& axis, DType type) {
    GemmProblem p = implicit_gemm(
        {.kind = Conv::wgrad, .images = 2, .channels = 1, .filters = 1, .axes = {kNone, axis, axis}}, 64, type, type);
    p.kernel = KernelFamily::direct;
    const std::optional<Spec> spec = direct_wgrad_spec(p, h100());
    return spec ? spec->tile_m : 0;
  };
  EXPECT_EQ(strip({.size = 65, .filter = 3, .dilation = 9}, DType::f16), 3u);
  EXPECT_EQ(strip({.size = 65, .filter = 5, .stride = 4, .dilation = 2}, DType::f16), 3u);
  EXPECT_EQ(strip({.size = 65, .filter = 9, .stride = 4}, DType::f32), 3u);
  EXPECT_GE(strip({.size = 65, .filter = 3}, DType::f16), 4u);
}

TEST(DirectConv, TeamsOfSlicesHaveEachOnce) {
  for (uint32_t slices = 1; slices <= 600; ++slices) {
    const DirectReduction of(slices);
    uint32_t members = 0;
    for (uint32_t team = 0; team < of.teams; ++team) {
      ASSERT_GE(of.members(team), 1u);
      ASSERT_LE(of.members(team), of.team);
      members += of.members(team);
    }
    ASSERT_EQ(members, slices);
    ASSERT_LE(of.team, 25u);
  }
}

TEST(DirectConv, VectorsAreAsWideAsChannelsAre) {
  for (const auto& [channels, vector] : {std::pair(96, 8), std::pair(12, 4), std::pair(6, 2), std::pair(7, 1)})
    EXPECT_EQ(narrow_vector(depthwise(Conv::fprop, 3, 1, channels), 8), uint32_t(vector)) << channels;
  EXPECT_EQ(narrow_vector(depthwise(Conv::fprop, 3, 1, 96), 4), 4u);
  GemmProblem sliced = depthwise(Conv::fprop, 3, 1, 96);
  sliced.a.stride_row = 98;
  EXPECT_EQ(narrow_vector(sliced, 8), 2u);
}

TEST(DirectConv, LeavesTheRest) {
  const auto expect_unserved = [](const GemmProblem& p) { EXPECT_FALSE(cheapest(p, h100(), Kernels::all).choice); };
  expect_unserved(depthwise(Conv::fprop, 3, 1, 96, 3));
  expect_unserved(depthwise(Conv::fprop, 3, 1, 96, 12));
  expect_unserved(depthwise(Conv::dgrad, 3, 5, 96));
  expect_unserved(depthwise(Conv::wgrad, 5, 1, 96, 8));  // more sums than registers
  expect_unserved(depthwise(Conv::wgrad, 3, 5, 96));
  GemmProblem apart = depthwise(Conv::fprop, 3, 1, 96);
  apart.a.stride_batch = 2;
  expect_unserved(apart);
  GemmProblem split = depthwise(Conv::fprop, 3, 1, 96);
  split.split_k_mode = SplitKMode::parallel;
  expect_unserved(split);
  GemmProblem serial = depthwise(Conv::wgrad, 3, 1, 96);
  serial.split_k_mode = SplitKMode::serial;
  expect_unserved(serial);
}

TEST(DirectConv, TilesOfATunedFileMayBeAnything) {
  for (const Conv kind : {Conv::fprop, Conv::dgrad, Conv::wgrad}) {
    const GemmProblem p = depthwise(kind, 3, 1, 96);
    for (const uint32_t m : {0u, 4u, 9u, UINT32_MAX}) {
      for (const uint32_t n : {0u, 31u, UINT32_MAX - 7})
        EXPECT_FALSE(make_choice(p, h100(), {.family = KernelFamily::direct, .tile_m = m, .tile_n = n}));
    }
  }
  // Threads for so many channels, times the filter's lines, are none in 32 bits.
  GemmProblem even = depthwise(Conv::wgrad, 2, 1, 97);
  EXPECT_FALSE(make_choice(even, h100(), {.family = KernelFamily::direct, .tile_m = 4, .tile_n = 1u << 31}));
}

TEST(DirectConv, IsChosenUnlessAnotherIsAskedFor) {
  const auto family = [](const GemmProblem& p) { return cheapest(p, h100(), Kernels::all).choice->config.family; };
  for (const Conv kind : {Conv::fprop, Conv::dgrad, Conv::wgrad}) {
    GemmProblem p = depthwise(kind, 3, 1, 96);
    p.kernel = KernelFamily::automatic;
    EXPECT_EQ(family(p), KernelFamily::direct);
    p.kernel = KernelFamily::portable;
    EXPECT_EQ(family(p), KernelFamily::portable);
    if (kind == Conv::wgrad) continue;
    p.kernel = KernelFamily::automatic;
    GemmProblem split = p;
    split.split_k_slices = 4;
    EXPECT_NE(family(split), KernelFamily::direct);
  }
}

}  // namespace
}  // namespace cleave

// Convolutions pixel by pixel: that strips and taps meet what the definition says, each once, wherever a strip begins.

#include "cleave/conv/direct_conv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cleave/config/direct_work.h"
#include "cleave/config/smem_plan.h"
#include "cleave/names.h"
#include "conv_choice.h"
#include "conv_geometry.h"
#include "expect_no_spills.h"
#include "jit/source.h"
#include "plan/catalogue/candidates.h"
#include "plan/direct/choice.h"
#include "plan/spec.h"

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

TEST(DirectConv, ServesNarrowGroups) {
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
    for (const int64_t group : {1, 2, 4}) {
      for (const int32_t stride : {1, 2, 3}) {
        const GemmProblem p = depthwise(kind, 3, stride, 96, group);
        const Cheapest best = cheapest(p, h100(), Kernels::all);
        ASSERT_TRUE(best.choice.has_value()) << to_string(kind) << group << stride;
        const GemmConfig& c = best.choice->config;
        EXPECT_EQ(c.family, KernelFamily::direct);
        EXPECT_EQ(best.choice->problem.n, 96);
        EXPECT_EQ(c.direct.group, uint32_t(group));
        EXPECT_EQ(c.direct.vector, 4u);
        EXPECT_LE(c.tile.n / c.direct.vector * c.direct.strips * direct_lines(c), kDirectThreads);
        const DirectShape shape = direct_shape(*best.choice);
        EXPECT_GE(shape.blocks.divisor * c.tile.n, 96u);
        EXPECT_GE(shape.columns.divisor * c.direct.strips * c.tile.m, shape.made[1]);
        EXPECT_GE(shape.rows.divisor * shape.steps * direct_lines(c), shape.made[0]);
        if (kind == Conv::dgrad) {
          EXPECT_EQ(c.tile.m % uint32_t(stride), 0u);
        }
      }
    }
  }
}

TEST(DirectConv, StagesWhatACtasLinesMeet) {
  Random random(7);
  int staged = 0;
  for (int round = 0; round < 300; ++round) {
    const Conv kind = random.coin() ? Conv::fprop : Conv::dgrad;
    const ConvAxis height = draw_axis(random, 4), width = draw_axis(random, 4);
    const ConvLayout conv{.kind = kind, .images = 2, .channels = 1, .filters = 1, .axes = {kNone, height, width}};
    GemmProblem p = implicit_gemm(conv, 48, DType::f16, DType::f16);
    p.kernel = KernelFamily::direct;
    const Cheapest best = cheapest(p, h100(), Kernels::all);
    if (!best.choice || best.choice->blocks == 0 || best.choice->config.direct.pixels == 0) continue;
    SCOPED_TRACE(text(conv));
    ++staged;
    const GemmConfig& c = best.choice->config;
    const DirectShape shape = direct_shape(*best.choice);
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
    return cheapest(p, h100(), Kernels::all).choice->config.direct.pixels > 0;
  };
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
    EXPECT_TRUE(staged(kind, 28, 1));
    EXPECT_FALSE(staged(kind, 47, 1));
  }
  EXPECT_TRUE(staged(Conv::fprop, 56, 2));  // 28 are made
  EXPECT_FALSE(staged(Conv::dgrad, 56, 2));
}

TEST(DirectConv, SlicesOfWeightGradientsHaveEveryLineOnce) {
  for (const int64_t group : {1, 2, 4}) {
    for (const int32_t taps : {3, 5, 7}) {
      for (const int32_t slices : {0, 1, 7, 100}) {
        GemmProblem p = depthwise(Conv::wgrad, taps, 1, 160, group, 19);
        if (slices > 0) p.split_k_slices = slices;
        const Cheapest best = cheapest(p, h100(), Kernels::all);
        if (group * taps * group > 80) {
          EXPECT_FALSE(best.choice);
          continue;
        }
        ASSERT_TRUE(best.choice.has_value()) << group << " " << taps << " " << slices;
        const Choice& choice = *best.choice;
        const GemmConfig& c = choice.config;
        const DirectShape shape = direct_shape(choice);
        EXPECT_EQ(shape.channels, 160u);
        EXPECT_EQ(shape.lines, 8u * 19);
        const uint32_t found = choice.blocks / shape.blocks.divisor;
        EXPECT_EQ(found, choice.spec.slices);
        if (slices > 0) {
          EXPECT_EQ(found, ceil_div(shape.lines, ceil_div(shape.lines, uint32_t(slices))));
        }
        EXPECT_GE(found * shape.steps, shape.lines);
        EXPECT_LT((found - 1) * shape.steps, shape.lines);
        EXPECT_GE(shape.columns.divisor * c.tile.m, shape.made[1]);
        EXPECT_GE(shape.blocks.divisor * c.tile.n, shape.channels);
        EXPECT_LE(direct_places(c) * c.direct.height.taps * c.tile.n / c.direct.vector, kDirectThreads);
        EXPECT_EQ(choice.workspace_bytes() > 0, found > 1);
        EXPECT_EQ(choice.spec.split, found > 1 ? SplitKMode::parallel : SplitKMode::none);
      }
    }
  }
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
  for (const auto& [channels, vector] : {std::pair(96, 4), std::pair(6, 2), std::pair(7, 1)}) {
    const GemmProblem p = depthwise(Conv::fprop, 3, 1, channels);
    EXPECT_EQ(cheapest(p, h100(), Kernels::all).choice->config.direct.vector, uint32_t(vector)) << channels;
  }
  GemmProblem sliced = depthwise(Conv::fprop, 3, 1, 96);
  sliced.a.stride_row = 98;
  EXPECT_EQ(cheapest(sliced, h100(), Kernels::all).choice->config.direct.vector, 2u);
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

GemmProblem few_channels(int64_t channels, int64_t filters, const ConvAxis& height, const ConvAxis& width,
                         Conv kind = Conv::fprop) {
  const ConvLayout conv{
      .kind = kind, .images = 3, .channels = channels, .filters = filters, .axes = {kNone, height, width}};
  GemmProblem p = implicit_gemm(conv, 1, DType::f16, DType::f16);
  p.kernel = KernelFamily::direct;
  return p;
}

TEST(DirectWindows, EachElementOfKIsWhatTheDefinitionSays) {
  Random random(2);
  int served = 0;
  for (int round = 0; round < 500; ++round) {
    ConvAxis height = draw_axis(random, 4), width = draw_axis(random, 4);
    width.dilation = 1;
    const GemmProblem p = few_channels(random.number(1, 4), random.number(1, 150), height, width);
    const auto specs = direct_specs(p, h100());
    const auto choice = specs.empty() ? std::nullopt : make_choice(p, h100(), specs[0]);
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

TEST(DirectWindows, WarpsHaveEachElementOfAFilter) {
  Random random(3);
  int served = 0;
  for (int round = 0; round < 500; ++round) {
    ConvAxis height = draw_axis(random, 4), width = draw_axis(random, 4);
    width.dilation = 1;
    GemmProblem p = few_channels(random.number(1, 4), 8 * random.number(1, 20), height, width, Conv::wgrad);
    p.split_k_slices = random.number(0, 40);
    const auto specs = direct_specs(p, h100());
    const auto choice = specs.empty() ? std::nullopt : make_choice(p, h100(), specs[0]);
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
    EXPECT_EQ(choice->partial_bytes > 0, choice->spec.slices > 1);
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
  ConvAxis odd = axis, dilated = axis, large = axis;
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
  EXPECT_FALSE(is_served(few_channels(5, 64, axis, axis)));
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

TEST(DirectSpread, CellsMeetWhatTheDefinitionSays) {
  Random random(4);
  int served = 0;
  for (int round = 0; round < 500; ++round) {
    const ConvAxis height = draw_axis(random, 4), width = draw_axis(random, 4);
    const GemmProblem p = few_channels(random.number(1, 24), 8 * random.number(1, 20), height, width, Conv::dgrad);
    const auto specs = direct_specs(p, h100());
    const auto choice = specs.empty() ? std::nullopt : make_choice(p, h100(), specs[0]);
    if (!choice) continue;
    ++served;
    SCOPED_TRACE(text(p.conv));
    const GemmConfig& c = choice->config;
    const DirectShape shape = direct_shape(*choice);
    EXPECT_EQ(c.warps.m * c.warps.n * 32, kDirectThreads);
    EXPECT_EQ(c.tile.m, c.warps.m * kSpreadRows);
    EXPECT_EQ(shape.blocks.divisor * c.tile.n, shape.channels);
    EXPECT_GE(c.warps.n * spread_blocks(c) * 8, spread_columns(c));
    EXPECT_EQ(choice->blocks, shape.blocks.divisor * shape.columns.divisor * shape.rows.divisor * 3);
    EXPECT_LE(smem_plan(c).bytes, uint32_t(h100().shared_memory_per_block));
    for (const uint32_t i : {0u, 1u}) {
      const Conv kind = Conv::dgrad;
      const ConvAxis& axis = p.conv.axes[1 + i];
      const DirectAxis& of = i == 0 ? c.direct.height : c.direct.width;
      const uint32_t tiles = i == 0 ? shape.rows.divisor : shape.columns.divisor;
      const uint32_t cells = ceil_div(shape.made[i], of.stride), each = shape.cells[i];
      EXPECT_LT((tiles - 1) * each, cells) << "none is empty";
      EXPECT_GE(tiles * each, cells);
      if (i == 1) {
        EXPECT_LE(each + cell_reach(of), spread_width(c));
      }
      std::map<std::pair<int64_t, int64_t>, int64_t> wanted;
      ConvLayout line{.kind = kind, .images = 1, .axes = {kNone, kNone, axis}};
      for_each_meeting(line, [&](int64_t x, int64_t tap, int64_t y) { wanted[{x, tap}] = y; });
      size_t met = 0;
      for (uint32_t cell = 0; cell < cells; ++cell) {
        const uint32_t begin = cell / each * each;
        const int32_t first = first_gathered(kind, of, begin * of.stride, axis.pad_begin) + cell_span(of).first;
        for (uint32_t j = 0; j < of.stride && cell * of.stride + j < shape.made[i]; ++j) {
          for (uint32_t tap = 0; tap < of.taps; ++tap) {
            const int32_t way = gathered_at(kind, of, j, tap);
            if (way == kApart) continue;
            const auto place = uint32_t(int32_t(cell - begin) + way - cell_span(of).first);  // in the tile
            EXPECT_LE(place, cell - begin + cell_reach(of));
            const int64_t pixel = first + int64_t(place);
            if (pixel < 0 || pixel >= shape.gathered[i]) continue;
            const auto found = wanted.find({cell * of.stride + j, tap});
            ASSERT_NE(found, wanted.end());
            ASSERT_EQ(found->second, pixel);
            ++met;
          }
        }
      }
      EXPECT_EQ(met, wanted.size());
    }
  }
  EXPECT_GT(served, 100);
}

TEST(DirectSpread, IsChosenForFirstLayers) {
  const ConvAxis seven{.size = 224, .filter = 7, .stride = 2, .pad_begin = 3, .pad_end = 3};
  const ConvAxis three{.size = 512, .filter = 3, .pad_begin = 1, .pad_end = 1};
  for (const ConvAxis& axis : {seven, three}) {
    GemmProblem p = few_channels(3, 64, axis, axis, Conv::dgrad);
    p.kernel = KernelFamily::automatic;
    const Choice choice = *cheapest(p, h100(), Kernels::all).choice;
    EXPECT_EQ(choice.config.family, KernelFamily::direct);
    EXPECT_EQ(choice.config.direct.method, DirectMethod::spread);
  }
}

TEST(DirectSpread, SpillsNothing) {
  const ConvAxis stem{.size = 224, .filter = 7, .stride = 2, .pad_begin = 3, .pad_end = 3};
  const ConvAxis patches{.size = 224, .filter = 4, .stride = 4}, plain{.size = 64, .filter = 3, .pad_begin = 1};
  std::set<std::string> sources;
  for (const GemmProblem& p :
       {few_channels(3, 64, stem, stem, Conv::dgrad), few_channels(3, 96, patches, patches, Conv::dgrad),
        few_channels(24, 320, plain, plain, Conv::dgrad)})
    sources.insert(gemm_source(make_choice(p, h100(), direct_specs(p, h100())[0])->config));
  EXPECT_EQ(sources.size(), 3u);
  for (const char* arch : {"sm_80", "sm_90a"}) expect_no_spills(sources, arch, 128);
}

TEST(DirectSpread, LeavesTheRest) {
  const ConvAxis axis{.size = 32, .filter = 3, .pad_begin = 1, .pad_end = 1};
  ConvAxis far = axis, many = axis;
  far.stride = 5;
  many.filter = many.pad_begin = many.pad_end = 30;
  const auto is_served = [](const GemmProblem& p) { return bool(cheapest(p, h100(), Kernels::all).choice); };
  const auto gradient = [](int64_t channels, int64_t filters, const ConvAxis& height, const ConvAxis& width) {
    return few_channels(channels, filters, height, width, Conv::dgrad);
  };
  EXPECT_TRUE(is_served(gradient(3, 64, axis, axis)));
  EXPECT_TRUE(is_served(gradient(24, 64, axis, axis)));
  EXPECT_FALSE(is_served(gradient(96, 64, axis, axis)));
  EXPECT_FALSE(is_served(gradient(3, 60, axis, axis)));
  EXPECT_FALSE(is_served(gradient(3, 64, far, axis)));
  EXPECT_FALSE(is_served(gradient(3, 64, many, many)));
  GemmProblem split = gradient(3, 64, axis, axis);
  split.split_k_slices = 2;
  EXPECT_FALSE(is_served(split));
  GemmProblem floats = gradient(3, 64, axis, axis);
  floats.a.dtype = floats.b.dtype = DType::f32;
  EXPECT_FALSE(is_served(floats));
}

TEST(DirectConv, TilesOfATunedFileMayBeAnything) {
  for (const Conv kind : {Conv::fprop, Conv::dgrad, Conv::wgrad}) {
    const GemmProblem p = depthwise(kind, 3, 1, 96);
    for (const uint32_t m : {0u, 4u, 9u, UINT32_MAX}) {
      for (const uint32_t n : {0u, 31u, UINT32_MAX - 7})
        EXPECT_FALSE(make_choice(p, h100(), {.family = KernelFamily::direct, .tile_m = m, .tile_n = n}));
    }
  }
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

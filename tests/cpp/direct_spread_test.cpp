// Outputs of few filters and data gradients to few channels, spread over pixels: that cells meet what the definition
// says.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "cleave/config/direct_work.h"
#include "cleave/config/smem_plan.h"
#include "cleave/conv/direct_conv.h"
#include "conv_geometry.h"
#include "expect_no_spills.h"
#include "few_channels.h"
#include "jit/source.h"
#include "plan/catalogue/candidates.h"
#include "plan/direct/choice.h"

namespace cleave {
namespace {

TEST(DirectSpread, CellsMeetWhatTheDefinitionSays) {
  Random random(4);
  int served[2] = {};
  for (int round = 0; round < 800; ++round) {
    const Conv kind = round % 2 == 0 ? Conv::dgrad : Conv::fprop;
    const int32_t most_stride = kind == Conv::dgrad ? 4 : 1;
    const ConvAxis height = draw_axis(random, most_stride), width = draw_axis(random, most_stride);
    const int64_t made = random.number(1, 24), gathered = 8 * random.number(1, 20);
    const GemmProblem p = kind == Conv::dgrad ? few_channels(made, gathered, height, width, kind)
                                              : few_channels(gathered, made, height, width, kind);
    const auto choice = direct_choice(p, DirectMethod::spread);
    if (!choice) continue;
    ++served[round % 2];
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
      const ConvAxis& axis = p.conv.axes[1 + i];
      const DirectAxis& of = i == 0 ? c.direct.height : c.direct.width;
      const uint32_t tiles = i == 0 ? shape.rows.divisor : shape.columns.divisor;
      const uint32_t cells = ceil_div(shape.made[i], of.stride), each = shape.cells[i];
      EXPECT_LT((tiles - 1) * each, cells) << "none is empty";
      EXPECT_GE(tiles * each, cells);
      if (i == 1) {
        EXPECT_LE(each + cell_reach(kind, of), spread_width(c));
      }
      std::map<std::pair<int64_t, int64_t>, int64_t> wanted;
      ConvLayout line{.kind = kind, .images = 1, .axes = {kNone, kNone, axis}};
      for_each_meeting(line, [&](int64_t x, int64_t tap, int64_t y) {
        wanted[{kind == Conv::dgrad ? x : y, tap}] = kind == Conv::dgrad ? y : x;
      });
      size_t met = 0;
      for (uint32_t cell = 0; cell < cells; ++cell) {
        const uint32_t begin = cell / each * each;
        const int32_t first = first_gathered(kind, of, begin * of.stride, axis.pad_begin) + cell_span(kind, of).first;
        for (uint32_t j = 0; j < of.stride && cell * of.stride + j < shape.made[i]; ++j) {
          for (uint32_t tap = 0; tap < of.taps; ++tap) {
            const int32_t way = gathered_at(kind, of, j, tap);
            if (way == kApart) continue;
            const auto place = uint32_t(int32_t(cell - begin) + way - cell_span(kind, of).first);  // in the tile
            EXPECT_LE(place, cell - begin + cell_reach(kind, of));
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
  for (const int of_kind : served) EXPECT_GT(of_kind, 100);
}

TEST(DirectSpread, PlanesMeetWhatTheDefinitionSays) {
  Random random(5);
  int served = 0;
  for (int round = 0; round < 200; ++round) {
    const Conv kind = round % 2 == 0 ? Conv::dgrad : Conv::fprop;
    const ConvAxis depth = draw_axis(random, 1), plain{.size = 20, .filter = 3, .pad_begin = 1, .pad_end = 1};
    const auto choice = direct_choice(
        few_channels(kind == Conv::dgrad ? 3 : 64, kind == Conv::dgrad ? 64 : 3, plain, plain, kind, depth),
        DirectMethod::spread);
    if (!choice) continue;
    ++served;
    const DirectShape shape = direct_shape(*choice);
    const DirectAxis& of = choice->config.direct.depth;
    EXPECT_EQ(choice->blocks, shape.columns.divisor * shape.rows.divisor * 3 * shape.depths.divisor);
    const ConvLayout line{.kind = kind, .images = 1, .axes = {kNone, kNone, depth}};
    std::map<std::pair<int64_t, int64_t>, int64_t> wanted, found;
    for_each_meeting(line, [&](int64_t x, int64_t tap, int64_t y) {
      wanted[{kind == Conv::dgrad ? x : y, tap}] = kind == Conv::dgrad ? y : x;
    });
    for (uint32_t plane = 0; plane < shape.depths.divisor; ++plane) {
      for (uint32_t tap = 0; tap < of.taps; ++tap) {
        const int32_t met = first_gathered(kind, of, plane, shape.pad_depth) + gathered_at(kind, of, 0, tap);
        if (is_inside(met, shape.met_depth)) found[{plane, tap}] = met;
      }
    }
    EXPECT_EQ(found, wanted);
  }
  EXPECT_GT(served, 100);
}

TEST(DirectSpread, IsChosenForFirstLayersGradientsAndForLastLayers) {
  const ConvAxis seven{.size = 224, .filter = 7, .stride = 2, .pad_begin = 3, .pad_end = 3};
  const ConvAxis three{.size = 512, .filter = 3, .pad_begin = 1, .pad_end = 1};
  for (GemmProblem p : {few_channels(3, 64, seven, seven, Conv::dgrad), few_channels(3, 64, three, three, Conv::dgrad),
                        few_channels(128, 3, three, three), few_channels(320, 4, three, three)}) {
    p.kernel = KernelFamily::automatic;
    const Choice choice = *cheapest(p, h100(), Kernels::all).choice;
    EXPECT_EQ(choice.config.family, KernelFamily::direct);
    EXPECT_EQ(choice.config.direct.method, DirectMethod::spread);
  }
}

TEST(DirectSpread, SpillsNothing) {
  const ConvAxis stem{.size = 224, .filter = 7, .stride = 2, .pad_begin = 3, .pad_end = 3};
  const ConvAxis patches{.size = 224, .filter = 4, .stride = 4}, plain{.size = 64, .filter = 3, .pad_begin = 1};
  const ConvAxis five{.size = 41, .filter = 5, .pad_begin = 2}, four{.size = 63, .filter = 4, .pad_begin = 2};
  std::set<std::string> sources;
  for (const GemmProblem& p :
       {few_channels(3, 64, stem, stem, Conv::dgrad), few_channels(3, 96, patches, patches, Conv::dgrad),
        few_channels(24, 320, plain, plain, Conv::dgrad), few_channels(128, 3, plain, plain),
        few_channels(512, 8, plain, plain), few_channels(96, 3, plain, plain, Conv::fprop, plain),
        few_channels(72, 7, five, four)})
    sources.insert(gemm_source(make_choice(p, h100(), direct_specs(p, h100())[0])->config));
  EXPECT_EQ(sources.size(), 7u);
  for (const char* arch : {"sm_80", "sm_90a"}) expect_no_spills(sources, arch, 128);
}

TEST(DirectSpread, LeavesTheRest) {
  const ConvAxis axis{.size = 32, .filter = 3, .pad_begin = 1, .pad_end = 1};
  ConvAxis far = axis, many = axis;
  far.stride = 5;
  many.filter = many.pad_begin = many.pad_end = 30;
  const auto is_served = [](const GemmProblem& p) { return bool(direct_choice(p, DirectMethod::spread)); };
  const auto gradient = [](int64_t channels, int64_t filters, const ConvAxis& height, const ConvAxis& width) {
    return few_channels(channels, filters, height, width, Conv::dgrad);
  };
  EXPECT_TRUE(is_served(gradient(3, 64, axis, axis)));
  EXPECT_TRUE(is_served(gradient(24, 64, axis, axis)));
  EXPECT_FALSE(is_served(gradient(96, 64, axis, axis)));
  EXPECT_FALSE(is_served(gradient(3, 60, axis, axis)));
  EXPECT_FALSE(is_served(gradient(3, 64, far, axis)));
  EXPECT_FALSE(is_served(gradient(3, 64, many, many)));
  ConvAxis strided = axis;
  strided.stride = 2;
  EXPECT_TRUE(is_served(few_channels(64, 3, axis, axis, Conv::fprop, axis)));
  EXPECT_FALSE(is_served(few_channels(64, 3, axis, axis, Conv::fprop, strided)));
  EXPECT_TRUE(is_served(few_channels(64, 3, axis, axis)));
  EXPECT_FALSE(is_served(few_channels(64, 3, strided, axis)));
  EXPECT_FALSE(is_served(few_channels(60, 3, axis, axis)));
  GemmProblem unaligned = few_channels(64, 3, axis, axis);
  unaligned.b.alignment = 8;
  EXPECT_FALSE(is_served(unaligned));
  GemmProblem split = gradient(3, 64, axis, axis);
  split.split_k_slices = 2;
  EXPECT_FALSE(is_served(split));
  GemmProblem floats = gradient(3, 64, axis, axis);
  floats.a.dtype = floats.b.dtype = DType::f32;
  EXPECT_FALSE(is_served(floats));
}

}  // namespace
}  // namespace cleave

// Data gradients to few channels, spread over pixels: that cells meet what the definition says.
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
  int served = 0;
  for (int round = 0; round < 500; ++round) {
    const ConvAxis height = draw_axis(random, 4), width = draw_axis(random, 4);
    const GemmProblem p = few_channels(random.number(1, 24), 8 * random.number(1, 20), height, width, Conv::dgrad);
    const auto choice = direct_choice(p);
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

}  // namespace
}  // namespace cleave

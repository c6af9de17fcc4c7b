// Weight gradients of few filters by tensor cores: that pixels and taps meet what the definition says, each once, and
// which of them are served.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cleave/config/direct_spread_wgrad.h"
#include "cleave/config/direct_work.h"
#include "cleave/config/smem_plan.h"
#include "cleave/conv/direct_conv.h"
#include "conv_choice.h"
#include "conv_geometry.h"
#include "direct_slices.h"
#include "expect_no_spills.h"
#include "jit/source.h"
#include "last_layers.h"
#include "plan/catalogue/candidates.h"
#include "plan/choice/spec.h"
#include "plan/direct/choice.h"

namespace cleave {
namespace {

std::vector<Choice> spread_choices(const GemmProblem& p) {
  std::vector<Choice> found;
  for (const Spec& own : direct_specs(p, h100())) {
    for (const uint32_t m : {256u, 512u}) {
      Spec spec = own;
      spec.tile_m = m;
      auto choice = make_choice(p, h100(), spec);
      if (choice && choice->config.direct.method == DirectMethod::spread) found.push_back(*choice);
    }
  }
  return found;
}

/// Outputs that the words of a stage are pairs of, where a tile was filled; -1: none.
using Stage = std::vector<std::array<int64_t, 2>>;

Stage fill(const GemmConfig& c, const DirectShape& shape, const DirectTile& tile) {
  constexpr int64_t kUntouched = -2;
  Stage stage(tap_words(c), {kUntouched, kUntouched});
  const uint32_t depths = shape.depths.divisor, image = tile.image / depths, depth = tile.image % depths;
  for (uint32_t number = 0; number < tap_filled(c); ++number) {
    const TapWord word = tap_word(c, number);
    const int32_t z =
        output_at(c.direct.depth, int32_t(depth) + shape.pad_depth - int32_t(word.tap * c.direct.depth.dilation),
                  shape.met_depth);
    const int32_t x =
        output_at(c.direct.width,
                  int32_t(tile.column * tap_width(c) + word.column) + shape.pad[1] - int32_t(tap_reach(c.direct.width)),
                  shape.made[1]);
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t line = (tile.row * 2 + half) * tap_lines(c) + word.line;
      const int32_t y =
          output_at(c.direct.height, int32_t(line) + shape.pad[0] - int32_t(tap_reach(c.direct.height)), shape.made[0]);
      const bool exists = x >= 0 && y >= 0 && z >= 0;
      auto& place = stage[tap_word_at(c, word)][half];
      EXPECT_EQ(place, kUntouched);
      place = exists ? pixel_number(int64_t(image) * shape.met_depth + z, y, x, shape.made) : -1;
    }
  }
  return stage;
}

TEST(DirectSpreadWgrad, PixelsAndTapsMeetWhatTheDefinitionSays) {
  Random random(9);
  int served = 0;
  for (int round = 0; round < 120; ++round) {
    const bool deep = random.coin();
    const GemmProblem p = few_filters(8 * random.number(1, 20), random.number(1, 16),
                                      deep ? draw_axis(random, 4) : kNone, draw_axis(random, 4), draw_axis(random, 4));
    std::map<std::pair<int64_t, int64_t>, int64_t> wanted;
    for_each_meeting(p.conv, [&](int64_t x, int64_t tap, int64_t y) { wanted[{x, tap}] = y; });
    for (const Choice& choice : spread_choices(p)) {
      ++served;
      const GemmConfig& c = choice.config;
      SCOPED_TRACE(text(p.conv) + ": " + to_string(choice.spec));
      const DirectShape shape = direct_shape(choice);
      EXPECT_EQ(c.warps.n * c.warps.k * 32, kDirectThreads);
      EXPECT_GE(c.warps.n * tap_blocks(c) * 8, tap_columns(c));
      EXPECT_EQ(choice.blocks % shape.blocks.divisor, 0u);  // a CTA's channels stay
      EXPECT_LE(smem_plan(c).bytes, uint32_t(h100().shared_memory_per_block));
      std::set<int64_t> pixels;
      size_t met = 0;
      for (uint32_t cta = 0; cta < shape.tiles; cta += shape.blocks.divisor) {
        const DirectTile tile = locate(shape, cta);
        const Stage stage = fill(c, shape, tile);
        for (uint32_t row = 0; row < c.tile.m; ++row) {
          const uint32_t half = row / (c.tile.m / 2), at = row % (c.tile.m / 2);
          const uint32_t line = at / tap_width(c), column = at % tap_width(c);
          const uint32_t y = (tile.row * 2 + half) * tap_lines(c) + line, x = tile.column * tap_width(c) + column;
          if (y >= shape.gathered[0] || x >= shape.gathered[1]) continue;
          const int64_t pixel = pixel_number(int64_t(tile.image), y, x, shape.gathered);
          EXPECT_TRUE(pixels.insert(pixel).second);
          for (uint32_t tap = 0; tap < taps(p.conv); ++tap) {
            for (uint32_t filter = 0; filter < c.tile.n; ++filter) {
              const TapPlace place = tap_place(c, filter * uint32_t(taps(p.conv)) + tap);
              const uint32_t to = line * tap_line(c) + column;
              const auto found = wanted.find({pixel, tap});
              const int64_t output = stage.at(place.gradient + to)[half];
              ASSERT_EQ(output, found == wanted.end() ? -1 : found->second);
              // The filter's own plane, or that of what exists.
              EXPECT_EQ((place.gradient + to) / tap_plane(c) % (c.tile.n + 1), filter);
              EXPECT_EQ((place.mask + to) / tap_plane(c) % (c.tile.n + 1), c.tile.n);
              EXPECT_EQ(place.mask - place.gradient, (c.tile.n - filter) * tap_plane(c));
              met += output >= 0 && filter == 0;
            }
          }
        }
      }
      EXPECT_EQ(int64_t(pixels.size()), image_pixels(p.conv));
      EXPECT_EQ(met, wanted.size());
    }
  }
  EXPECT_GT(served, 100);
}

TEST(DirectSpreadWgrad, EachSumIsOfAnotherColumnAndChannel) {
  std::set<std::pair<uint32_t, uint32_t>> found;
  for (uint32_t number = 0; number < 4 * 8 * kSpreadChannels; ++number) {
    const TapSum sum = tap_sum(number);
    EXPECT_LT(sum.channel, kSpreadChannels);
    EXPECT_TRUE(found.insert({sum.column, sum.channel}).second);
  }
  // A thread's registers: of lane 6, its second group of channels, and the third of four sums.
  const TapSum sum = tap_sum(tap_sum_number(2, 1, 3, 6));
  EXPECT_EQ(sum.column, 2 * 8 + 2 * 2 + 1u);
  EXPECT_EQ(sum.channel, 1 * 8 + 1 * 2 + 1u);
}

TEST(DirectSpreadWgrad, IsChosenForLastLayersOfDecoders) {
  const auto method = [](const GemmProblem& problem) {
    GemmProblem p = problem;
    p.kernel = KernelFamily::automatic;
    const Choice choice = *cheapest(p, h100(), Kernels::all).choice;
    return choice.config.family == KernelFamily::direct && choice.config.direct.method == DirectMethod::spread;
  };
  EXPECT_TRUE(method(few_filters(128, 3, kNone, plain_axis(512), plain_axis(512), 5)));
  EXPECT_TRUE(method(few_filters(64, 3, kNone, plain_axis(192), plain_axis(192), 60)));
  EXPECT_TRUE(method(few_filters(64, 1, kNone, plain_axis(256, 7), plain_axis(256, 7), 4)));
  EXPECT_FALSE(method(few_filters(320, 64, kNone, plain_axis(64), plain_axis(64), 9)));
}

TEST(DirectSpreadWgrad, SlicesHaveATileEach) {
  for (const int64_t slices : {0, 1, 2, 9}) {
    GemmProblem p = few_filters(136, 3, kNone, plain_axis(60), plain_axis(60), 7);
    p.split_k_slices = slices;
    for (const Choice& choice : spread_choices(p)) {
      const DirectShape shape = direct_shape(choice);
      EXPECT_EQ(shape.blocks.divisor, 3u);
      EXPECT_EQ(choice.blocks, 3 * choice.spec.slices);
      EXPECT_LE(choice.blocks, shape.tiles);
      expect_slices(choice, slices);
    }
  }
}

TEST(DirectSpreadWgrad, SpillsNothing) {
  std::vector<Choice> choices;
  for (const GemmProblem& p : {few_filters(128, 3, kNone, plain_axis(512), plain_axis(512)),
                               few_filters(320, 4, kNone, plain_axis(128), plain_axis(128)),
                               few_filters(64, 1, kNone, plain_axis(256, 7, 2), plain_axis(256, 7, 2)),
                               few_filters(64, 13, kNone, plain_axis(64), plain_axis(64, 3, 2))})
    choices.push_back(spread_choices(p).at(0));
  expect_no_spills(choices, 4);
}

TEST(DirectSpreadWgrad, LeavesTheRest) {
  const ConvAxis axis = plain_axis(32);
  ConvAxis far = axis, apart = axis, many = plain_axis(32, 31);
  far.stride = 5;
  apart.dilation = 200;
  const auto is_served = [](const GemmProblem& p) { return !spread_choices(p).empty(); };
  for (int64_t filters = 1; filters <= 16; ++filters) {
    EXPECT_TRUE(is_served(few_filters(64, filters, kNone, axis, axis)));
    EXPECT_TRUE(is_served(few_filters(64, filters, axis, axis, axis)));
  }
  EXPECT_FALSE(is_served(few_filters(64, 17, kNone, axis, axis)));
  EXPECT_FALSE(is_served(few_filters(60, 3, kNone, axis, axis)));
  EXPECT_FALSE(is_served(few_filters(64, 3, kNone, far, axis)));
  EXPECT_FALSE(is_served(few_filters(64, 3, far, axis, axis)));
  EXPECT_FALSE(is_served(few_filters(64, 3, kNone, axis, apart)));
  EXPECT_FALSE(is_served(few_filters(64, 3, kNone, many, many)));
  GemmProblem floats = few_filters(64, 3, kNone, axis, axis);
  floats.a.dtype = floats.b.dtype = DType::f32;
  EXPECT_FALSE(is_served(floats));
  GemmProblem serial = few_filters(64, 3, kNone, axis, axis);
  serial.split_k_mode = SplitKMode::serial;
  EXPECT_FALSE(is_served(serial));
}

}  // namespace
}  // namespace cleave

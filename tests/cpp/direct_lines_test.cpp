// Weight gradients of few filters by lines of pixels in registers: that lines and taps meet what the definition says,
// each once, and which of them are served.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cleave/config/direct_lines.h"
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

/// With every tile that serves it.
std::vector<Choice> lines_choices(const GemmProblem& p) {
  std::vector<Choice> found;
  for (const Spec& own : direct_specs(p, h100())) {
    for (const uint32_t m : {128u, 256u}) {
      for (const uint32_t n : {32u, 64u}) {
        Spec spec = own;
        spec.tile_m = m, spec.tile_n = n;
        auto choice = make_choice(p, h100(), spec);
        if (choice && choice->config.direct.method == DirectMethod::lines) found.push_back(*choice);
      }
    }
    if (!found.empty()) break;
  }
  return found;
}

/// A tile's gathered lines that a strip's registers hold, as it goes down: -1 where none was loaded.
class HeldLines {
 public:
  explicit HeldLines(const DirectAxis& down) : down_(down), held_(lines_held(down), -1) {
    load(0, 0, lines_held(down) - lines_left(down));
  }

  /// What the lines of outputs `line` and the next one have.
  const std::vector<int64_t>& go_down(uint32_t line) {
    if (line > 0) {
      for (size_t i = 0; i + lines_left(down_) < held_.size(); ++i) held_[i] = held_[i + lines_left(down_)];
    }
    load(line, lines_held(down_) - lines_left(down_), lines_held(down_));
    return held_;
  }

 private:
  void load(uint32_t line, uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end; ++i) held_[i] = is_line_met(down_, i) ? line * down_.stride + i : -1;
  }

  DirectAxis down_;
  std::vector<int64_t> held_;
};

TEST(DirectLines, LinesAndTapsMeetWhatTheDefinitionSays) {
  Random random(11);
  int served = 0;
  for (int round = 0; round < 150; ++round) {
    const bool deep = random.coin();
    const GemmProblem p = few_filters(8 * random.number(1, 20), random.number(1, 8) * 2,
                                      deep ? draw_axis(random, 4) : kNone, draw_axis(random, 4), draw_axis(random, 4));
    std::map<std::pair<int64_t, int64_t>, int64_t> wanted;
    for_each_meeting(p.conv, [&](int64_t x, int64_t tap, int64_t y) { wanted[{y, tap}] = x; });
    for (const Choice& choice : lines_choices(p)) {
      ++served;
      const GemmConfig& c = choice.config;
      SCOPED_TRACE(text(p.conv) + ": " + to_string(choice.spec));
      const DirectShape shape = direct_shape(choice);
      const DirectAxis &depth = c.direct.depth, &down = c.direct.height, &across = c.direct.width;
      const uint32_t blocks_of_channels = ceil_div(shape.channels, c.tile.k);
      EXPECT_EQ(shape.blocks.divisor, blocks_of_channels * depth.taps);
      EXPECT_EQ(choice.blocks % shape.blocks.divisor, 0u);  // a CTA's channels stay
      EXPECT_EQ(shift_pixels(c, shape), line_rows(c) * line_columns(c));
      EXPECT_LE(smem_plan(c).bytes, uint32_t(h100().shared_memory_per_block));
      std::set<std::pair<int64_t, int64_t>> met;
      for (uint32_t cta = 0; cta < shape.tiles; ++cta) {
        const DirectTile tile = locate(shape, cta);
        if (tile.channel % blocks_of_channels != 0) continue;
        const uint32_t depths = shape.depths.divisor, image = tile.image / depths,
                       t = tile.channel / blocks_of_channels;
        const int64_t z = int64_t(tile.image % depths * depth.stride) + t * depth.dilation - shape.pad_depth;
        const bool has_plane = z >= 0 && z < shape.met_depth;
        const int32_t y0 = first_gathered(Conv::wgrad, down, tile.row * line_height(c), shape.pad[0]);
        const int32_t x0 = first_gathered(Conv::wgrad, across, tile.column * line_width(c), shape.pad[1]);
        for (uint32_t strip = 0; strip < c.direct.strips; ++strip) {
          HeldLines lines(down);
          for (uint32_t line = 0; line < line_height(c); line += 2) {
            const std::vector<int64_t>& held = lines.go_down(line);
            for (uint32_t k = 0; k < 2 * kLineStrip; ++k) {
              const uint32_t column = strip * kLineStrip + k % kLineStrip, second = k / kLineStrip;
              const uint32_t u = tile.row * line_height(c) + line + second, v = tile.column * line_width(c) + column;
              if (u >= shape.made[0] || v >= shape.made[1]) continue;
              const int64_t output = pixel_number(int64_t(tile.image), u, v, shape.made);
              for (uint32_t tap = 0; tap < down.taps * across.taps; ++tap) {
                const int64_t row = held.at(line_met(down, second, tap / across.taps));
                const uint32_t from = column * across.stride + tap % across.taps * across.dilation;
                ASSERT_GE(row, 0);
                ASSERT_LT(row, line_rows(c));
                ASSERT_LT(from, line_columns(c));
                const int64_t y = y0 + row, x = x0 + int64_t(from);
                const int64_t all = int64_t(t) * down.taps * across.taps + tap;
                const auto found = wanted.find({output, all});
                const bool inside =
                    has_plane && is_inside(int32_t(y), shape.gathered[0]) && is_inside(int32_t(x), shape.gathered[1]);
                ASSERT_EQ(found != wanted.end(), inside);
                if (!inside) continue;
                ASSERT_EQ(found->second, pixel_number(int64_t(image) * shape.met_depth + z, y, x, shape.gathered));
                ASSERT_TRUE(met.insert({output, all}).second);
              }
            }
          }
        }
      }
      EXPECT_EQ(met.size(), wanted.size());
    }
  }
  EXPECT_GT(served, 100);
}

TEST(DirectLines, EachSumIsOfAnotherChannelAndFilter) {
  std::set<std::pair<uint32_t, uint32_t>> found;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    for (uint32_t i = 0; i < 8; ++i) {
      const StripSum sum = strip_sum(lane, i / 4, i % 4);
      EXPECT_LT(sum.channel, kLineChannels);
      EXPECT_LT(sum.filter, 16u);
      EXPECT_TRUE(found.insert({sum.channel, sum.filter}).second);
    }
  }
  // As mma.sync has them: of lane 6, the second block of filters, rows from 8 on, the second of a pair.
  EXPECT_EQ(strip_sum(6, 1, 3).channel, 8 + 1u);
  EXPECT_EQ(strip_sum(6, 1, 3).filter, 8 + 2 * 2 + 1u);
}

TEST(DirectLines, IsChosenWhereItIsPredictedToBeFarAhead) {
  const auto is_chosen = [](const GemmProblem& problem) {
    GemmProblem p = problem;
    p.kernel = KernelFamily::automatic;
    const Choice choice = *cheapest(p, h100(), Kernels::all).choice;
    return choice.config.family == KernelFamily::direct && choice.config.direct.method == DirectMethod::lines;
  };
  EXPECT_TRUE(is_chosen(few_filters(128, 12, kNone, plain_axis(128), plain_axis(128), 8)));
  EXPECT_TRUE(is_chosen(few_filters(256, 8, kNone, plain_axis(128), plain_axis(128), 8)));
  EXPECT_TRUE(is_chosen(few_filters(512, 8, kNone, plain_axis(128), plain_axis(128), 8)));
  EXPECT_TRUE(is_chosen(few_filters(64, 4, kNone, plain_axis(256, 3, 2), plain_axis(256, 3, 2), 16)));
  EXPECT_TRUE(is_chosen(few_filters(320, 4, kNone, plain_axis(128), plain_axis(128), 10)));
  EXPECT_TRUE(is_chosen(few_filters(96, 12, plain_axis(9), plain_axis(240), plain_axis(416), 1)));
  EXPECT_FALSE(is_chosen(few_filters(128, 3, kNone, plain_axis(512), plain_axis(512), 5)));
  EXPECT_FALSE(is_chosen(few_filters(320, 64, kNone, plain_axis(64), plain_axis(64), 9)));
}

TEST(DirectLines, SlicesHaveATileEach) {
  for (const int64_t slices : {0, 1, 2, 9}) {
    GemmProblem p = few_filters(136, 12, plain_axis(5), plain_axis(60), plain_axis(60), 2);
    p.split_k_slices = slices;
    const std::vector<Choice> choices = lines_choices(p);
    EXPECT_EQ(choices.size(), 4u);
    for (const Choice& choice : choices) {
      const DirectShape shape = direct_shape(choice);
      EXPECT_EQ(shape.blocks.divisor, ceil_div(136u, choice.config.tile.k) * 3);
      EXPECT_EQ(choice.blocks, shape.blocks.divisor * choice.spec.slices);
      EXPECT_LE(choice.blocks, shape.tiles);
      expect_slices(choice, slices);
    }
  }
}

TEST(DirectLines, SpillsNothing) {
  ConvAxis dilated = plain_axis(64);
  dilated.dilation = 2;
  std::vector<Choice> choices;
  for (const GemmProblem& p :
       {few_filters(128, 12, kNone, plain_axis(128), plain_axis(128)),
        few_filters(256, 8, kNone, plain_axis(128, 3, 2), plain_axis(128, 3, 2)),
        few_filters(128, 16, plain_axis(9), plain_axis(64), plain_axis(64)),
        few_filters(64, 4, kNone, plain_axis(64, 4), plain_axis(64, 5)), few_filters(64, 3, kNone, dilated, dilated)})
    for (const Choice& choice : lines_choices(p)) choices.push_back(choice);
  expect_no_spills(choices, 10);
}

TEST(DirectLines, LeavesTheRest) {
  const ConvAxis axis = plain_axis(32);
  ConvAxis far = axis, apart = axis;
  far.stride = 5;
  apart.dilation = 9;
  const auto is_served = [](const GemmProblem& p) { return !lines_choices(p).empty(); };
  for (int64_t filters = 1; filters <= 16; ++filters) {
    EXPECT_TRUE(is_served(few_filters(128, filters, kNone, axis, axis)));
    EXPECT_TRUE(is_served(few_filters(128, filters, axis, axis, axis)));
  }
  EXPECT_FALSE(is_served(few_filters(128, 17, kNone, axis, axis)));
  EXPECT_FALSE(is_served(few_filters(60, 8, kNone, axis, axis)));
  EXPECT_FALSE(is_served(few_filters(128, 8, kNone, far, axis)));
  EXPECT_FALSE(is_served(few_filters(128, 8, far, axis, axis)));
  EXPECT_FALSE(is_served(few_filters(128, 8, kNone, axis, apart)));
  EXPECT_FALSE(is_served(few_filters(128, 8, kNone, plain_axis(32, 7), plain_axis(32, 7))));
  EXPECT_FALSE(is_served(few_filters(128, 3, kNone, axis, plain_axis(33))));  // a line begins within a word
  EXPECT_TRUE(is_served(few_filters(128, 4, kNone, axis, plain_axis(33))));
  GemmProblem gaps = few_filters(128, 8, kNone, axis, axis);
  gaps.a.stride_col = 16;
  EXPECT_FALSE(is_served(gaps));
  GemmProblem floats = few_filters(128, 8, kNone, axis, axis);
  floats.a.dtype = floats.b.dtype = DType::f32;
  EXPECT_FALSE(is_served(floats));
  GemmProblem serial = few_filters(128, 8, kNone, axis, axis);
  serial.split_k_mode = SplitKMode::serial;
  EXPECT_FALSE(is_served(serial));
}

}  // namespace
}  // namespace cleave

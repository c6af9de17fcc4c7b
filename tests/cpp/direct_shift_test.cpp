// Convolutions of groups of few channels by tensor cores: that cells and taps meet what the definition says, each once,
// and which of them are served.

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cleave/config/direct_shift.h"
#include "cleave/config/direct_work.h"
#include "cleave/config/smem_plan.h"
#include "cleave/config/threads.h"
#include "cleave/conv/direct_conv.h"
#include "cleave/names.h"
#include "conv_choice.h"
#include "conv_geometry.h"
#include "direct_slices.h"
#include "expect_no_spills.h"
#include "jit/source.h"
#include "plan/catalogue/candidates.h"
#include "plan/choice/spec.h"
#include "plan/direct/choice.h"

namespace cleave {
namespace {

GemmProblem groups_of(int64_t groups, int64_t channels, int64_t filters, const ConvAxis& height, const ConvAxis& width,
                      Conv kind, int64_t images = 3) {
  const ConvLayout conv{
      .kind = kind, .images = images, .channels = channels, .filters = filters, .axes = {kNone, height, width}};
  GemmProblem p = implicit_gemm(conv, groups, DType::f16, DType::f16);
  p.kernel = KernelFamily::direct;
  return p;
}

/// The problem's choices of that method, with every tile that it has.
std::vector<Choice> shift_choices(const GemmProblem& p) {
  std::vector<Choice> found;
  for (const uint32_t n : {8, 16, 32, 64, 128, 256}) {
    for (uint32_t m = 16; m <= 512; m *= 2) {
      auto choice = make_choice(p, h100(), {.family = KernelFamily::direct, .tile_m = m, .tile_n = n});
      if (choice && choice->config.direct.method == DirectMethod::shift) found.push_back(*choice);
    }
  }
  return found;
}

TEST(DirectShift, RowsAndTapsMeetWhatTheDefinitionSays) {
  Random random(5);
  int served = 0;
  for (int round = 0; round < 150; ++round) {
    const Conv kind = std::array{Conv::fprop, Conv::dgrad, Conv::wgrad}[size_t(random.number(0, 2))];
    const GemmProblem p = groups_of(3, 8 << random.number(0, 2), 8 << random.number(0, 2), draw_axis(random, 4),
                                    draw_axis(random, 4), kind);
    const bool forward = kind != Conv::dgrad;
    std::map<std::pair<int64_t, int64_t>, int64_t> wanted;
    for_each_meeting(p.conv,
                     [&](int64_t x, int64_t tap, int64_t y) { forward ? wanted[{y, tap}] = x : wanted[{x, tap}] = y; });
    for (const Choice& choice : shift_choices(p)) {
      ++served;
      const GemmConfig& c = choice.config;
      SCOPED_TRACE(text(p.conv) + ": " + to_string(choice.spec));
      const DirectShape shape = direct_shape(choice);
      EXPECT_EQ(c.warps.m * c.warps.n * c.warps.k * 32, kDirectThreads);
      EXPECT_GE(shape.blocks.divisor * c.tile.n, shape.channels);
      EXPECT_EQ(choice.blocks % shape.blocks.divisor, 0u);  // a CTA's filters stay
      const uint32_t width = forward && kind != Conv::fprop ? round_up(shape.cells[1], 8u) : shape.cells[1];
      EXPECT_LE(shape.together * shape.cells[0] * width, c.tile.m);
      EXPECT_LE(shift_pixels(c, shape), c.direct.pixels);
      const uint32_t lines = shift_reach(kind, c.direct.height, shape.cells[0]);
      const uint32_t columns = shift_reach(kind, c.direct.width, shape.cells[1]);
      const uint32_t across = shift_cell(kind, c.direct.width), down = shift_cell(kind, c.direct.height);
      std::set<int64_t> made;
      size_t met = 0;
      for (uint32_t cta = 0; cta < shape.tiles; cta += shape.blocks.divisor) {
        const DirectTile tile = locate(shape, cta);
        const int32_t y0 = first_gathered(kind, c.direct.height, tile.row * shape.cells[0] * down, shape.pad[0]) +
                           shift_span(kind, c.direct.height).first;
        const int32_t x0 = first_gathered(kind, c.direct.width, tile.column * shape.cells[1] * across, shape.pad[1]) +
                           shift_span(kind, c.direct.width).first;
        for (uint32_t row = 0; row < c.tile.m; ++row) {
          const ShiftCell cell = shift_cell_of(shape, row);
          const uint32_t place = shift_place(c, shape, cell), image = tile.image * shape.together + cell.image;
          for (uint32_t of = 0; of < shift_classes(c); ++of) {
            const uint32_t y = (tile.row * shape.cells[0] + cell.line) * down + of / across;
            const uint32_t x = (tile.column * shape.cells[1] + cell.column) * across + of % across;
            const bool exists =
                cell.image < shape.together && image < shape.images && y < shape.made[0] && x < shape.made[1];
            const int64_t pixel = pixel_number(int64_t(image), y, x, shape.made);
            if (exists) {
              EXPECT_TRUE(made.insert(pixel).second);
            }
            for (uint32_t i = 0; i < shift_eights(c, of); ++i) {
              const ShiftEight eight = shift_eight(c, of, i);
              ASSERT_TRUE(eight.exists);
              const uint32_t at = place + eight.line * columns + eight.column;
              ASSERT_LT(at, shift_pixels(c, shape));  // also those that nobody wants are read
              EXPECT_EQ(eight.part, i % shift_parts(c));
              if (!exists) continue;
              // What was loaded there.
              const uint32_t line = at / columns;
              ASSERT_EQ(line / lines, cell.image);
              const int64_t gathered_y = y0 + int64_t(line % lines), gathered_x = x0 + int64_t(at % columns);
              if (!is_inside(int32_t(gathered_y), shape.gathered[0]) ||
                  !is_inside(int32_t(gathered_x), shape.gathered[1]))
                continue;
              const auto found = wanted.find({pixel, eight.tap});
              ASSERT_NE(found, wanted.end());
              ASSERT_EQ(found->second, pixel_number(int64_t(image), gathered_y, gathered_x, shape.gathered));
              ++met;
            }
            EXPECT_FALSE(shift_eight(c, of, shift_eights(c, of)).exists);
          }
        }
      }
      EXPECT_EQ(int64_t(made.size()), shape.made[0] * shape.made[1] * int64_t(shape.images));
      EXPECT_EQ(met, wanted.size() * shift_parts(c));
    }
  }
  EXPECT_GT(served, 300);
}

/// Taps in their order, each of which leaves its place to the one that many further.
TEST(DirectShift, HeldPixelsAreThoseThatTapsMeet) {
  for (uint32_t taps = 1; taps <= 9; ++taps) {
    for (uint32_t stride = 1; stride <= 4; ++stride) {
      for (uint32_t dilation = 1; dilation <= 4; ++dilation) {
        const DirectAxis down{.taps = taps, .stride = stride, .dilation = dilation};
        const uint32_t kept = shift_kept(down), held = shift_held(down);
        std::vector<uint32_t> lines(held);  // gathered
        for (uint32_t r = 0; r < kept; ++r) lines[shift_held_place(down, 0, r)] = r * dilation;
        for (uint32_t line = 0; line < 12; ++line) {
          if (kept == 0) lines[shift_held_place(down, line, 0)] = line * stride;
          for (uint32_t r = 0; r < taps; ++r) {
            uint32_t& place = lines[shift_held_place(down, line % held, r)];
            ASSERT_EQ(place, line * stride + r * dilation) << taps << " " << stride << " " << dilation;
            if (r + held < taps) place = line * stride + (r + held) * dilation;
          }
        }
      }
    }
  }
}

TEST(DirectShift, IsChosenForGroupsOfFewChannels) {
  const ConvAxis axis{.size = 28, .filter = 3, .pad_begin = 1, .pad_end = 1};
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
    for (const int64_t group : {8, 16, 32}) {
      GemmProblem p = groups_of(32, group, group, axis, axis, kind, 32);
      p.kernel = KernelFamily::automatic;
      const Choice choice = *cheapest(p, h100(), Kernels::all).choice;
      EXPECT_EQ(choice.config.family, KernelFamily::direct);
      EXPECT_EQ(choice.config.direct.method, DirectMethod::shift);
      EXPECT_EQ(choice.problem.n, 32 * group);
    }
  }
}

TEST(DirectShift, SpillsNothing) {
  const ConvAxis plain{.size = 28, .filter = 3, .pad_begin = 1, .pad_end = 1};
  ConvAxis strided = plain;
  strided.stride = 2;
  std::set<std::string> sources;
  for (const GemmProblem& p :
       {groups_of(32, 8, 8, plain, plain, Conv::fprop), groups_of(32, 32, 32, strided, strided, Conv::dgrad),
        groups_of(32, 16, 16, plain, plain, Conv::wgrad)}) {
    const std::vector<Choice> choices = shift_choices(p);
    const auto larger = [](const Choice& a, const Choice& b) {
      return accumulators_per_thread(a.config) < accumulators_per_thread(b.config);
    };
    sources.insert(gemm_source(std::ranges::max_element(choices, larger)->config));
  }
  EXPECT_EQ(sources.size(), 3u);
  for (const char* arch : {"sm_80", "sm_90a"}) expect_no_spills(sources, arch, 128);
}

TEST(DirectShift, GradientsSpillNothing) {
  std::set<std::string> sources, of_clusters;
  const auto add = [](const GemmProblem& p, const char* spec, std::set<std::string>& to) {
    const auto choice = choose(p, spec);
    ASSERT_TRUE(choice) << spec;
    to.insert(gemm_source(choice->config));
  };
  for (const auto& [down, across] : {std::pair{3, 3}, {1, 9}, {9, 1}, {4, 2}, {2, 4}, {1, 1}}) {
    for (const int32_t stride : {1, 2}) {
      const ConvAxis height{.size = 28, .filter = down, .stride = stride}, width{.size = 28, .filter = across};
      const GemmProblem p = groups_of(4, 32, 32, height, width, Conv::wgrad);
      add(p, "direct 128x32 parallel 4", sources);
      add(p, "direct 256x64 parallel 4 clusters 2", of_clusters);
    }
  }
  EXPECT_EQ(sources.size(), 12u);
  EXPECT_EQ(of_clusters.size(), 12u);
  for (const char* arch : {"sm_80", "sm_90a"}) expect_no_spills(sources, arch, 128);
  expect_no_spills(of_clusters, "sm_90a", 128);
}

TEST(DirectShift, ClustersAreWhole) {
  const ConvAxis axis{.size = 14, .filter = 3, .pad_begin = 1, .pad_end = 1};
  const GemmProblem p = groups_of(8, 32, 32, axis, axis, Conv::wgrad, 20);
  EXPECT_TRUE(serves(p, "direct 256x32 parallel 8 clusters 8"));
  EXPECT_TRUE(serves(p, "direct 256x32 parallel 6 clusters 3"));
  for (const char* spec : {"direct 256x32 parallel 6 clusters 4", "direct 256x32 parallel 16 clusters 16"})
    EXPECT_FALSE(serves(p, spec)) << spec;
  const auto ampere = make_choice(p, model_device("sm_80"), *parse_spec("direct 256x32 parallel 8 clusters 8"));
  EXPECT_FALSE(ampere);
}

TEST(DirectShift, SlicesOfWeightGradientsHaveATileEach) {
  const ConvAxis axis{.size = 14, .filter = 3, .pad_begin = 1, .pad_end = 1};
  for (const int64_t group : {8, 16, 32}) {
    for (const int64_t slices : {0, 1, 2, 9}) {
      GemmProblem p = groups_of(8, group, group, axis, axis, Conv::wgrad, 20);
      p.split_k_slices = slices;
      const Cheapest best = cheapest(p, h100(), Kernels::all);
      ASSERT_TRUE(best.choice);
      const Choice& choice = *best.choice;
      EXPECT_EQ(choice.config.direct.method, DirectMethod::shift);
      const DirectShape shape = direct_shape(choice);
      EXPECT_EQ(shape.channels, 8 * group);
      EXPECT_EQ(choice.blocks, shape.blocks.divisor * choice.spec.slices);
      EXPECT_LE(choice.blocks, shape.tiles);
      expect_slices(choice, slices);
    }
  }
}

TEST(DirectShift, LeavesTheRest) {
  const ConvAxis axis{.size = 32, .filter = 3, .pad_begin = 1, .pad_end = 1};
  ConvAxis far = axis, many = axis, five = axis;
  far.stride = 5;
  many.filter = many.pad_begin = many.pad_end = 15;
  const auto is_served = [](const GemmProblem& p) { return !shift_choices(p).empty(); };
  EXPECT_TRUE(is_served(groups_of(4, 16, 32, axis, axis, Conv::fprop)));
  EXPECT_TRUE(is_served(groups_of(4, 24, 32, axis, axis, Conv::fprop)));
  EXPECT_TRUE(is_served(groups_of(1, 32, 32, axis, axis, Conv::dgrad)));
  EXPECT_FALSE(is_served(groups_of(4, 32, 24, axis, axis, Conv::fprop)));
  EXPECT_FALSE(is_served(groups_of(4, 24, 32, axis, axis, Conv::dgrad)));
  EXPECT_FALSE(is_served(groups_of(4, 4, 8, axis, axis, Conv::fprop)));
  EXPECT_FALSE(is_served(groups_of(4, 128, 16, axis, axis, Conv::fprop)));
  EXPECT_FALSE(is_served(groups_of(4, 16, 16, far, axis, Conv::fprop)));
  EXPECT_FALSE(is_served(groups_of(4, 16, 16, many, many, Conv::fprop)));
  EXPECT_TRUE(is_served(groups_of(4, 16, 16, axis, axis, Conv::wgrad)));
  EXPECT_FALSE(is_served(groups_of(4, 64, 64, axis, axis, Conv::wgrad)));
  five.filter = 5;
  EXPECT_TRUE(is_served(groups_of(4, 16, 16, axis, five, Conv::fprop)));
  EXPECT_FALSE(is_served(groups_of(4, 16, 16, axis, five, Conv::wgrad)));
  GemmProblem apart = groups_of(4, 16, 16, axis, axis, Conv::fprop);
  apart.a.stride_batch = 8;
  EXPECT_FALSE(is_served(apart));
  GemmProblem split = groups_of(4, 16, 16, axis, axis, Conv::fprop);
  split.split_k_slices = 2;
  EXPECT_FALSE(is_served(split));
  GemmProblem floats = groups_of(4, 16, 16, axis, axis, Conv::fprop);
  floats.a.dtype = floats.b.dtype = DType::f32;
  EXPECT_FALSE(is_served(floats));
}

}  // namespace
}  // namespace cleave

// Weight gradients of narrow groups from lines of pixels in shared memory: that strips and taps find there what the
// definition says, which are served, and by which cuts.

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "cleave/config/direct_staged_wgrad.h"
#include "cleave/config/smem_plan.h"
#include "conv_choice.h"
#include "conv_geometry.h"
#include "depthwise.h"
#include "direct_slices.h"
#include "expect_no_spills.h"
#include "jit/source.h"
#include "plan/catalogue/candidates.h"
#include "plan/choice/spec.h"
#include "plan/direct/choice.h"
#include "plan/direct/staged_wgrad.h"

namespace cleave {
namespace {

GemmProblem square(int32_t taps, int32_t size, int64_t channels = 64, int64_t images = 60, int32_t stride = 1) {
  const ConvAxis axis = centred_axis(size, taps, stride);
  return depthwise(Conv::wgrad, axis, axis, channels, 1, images);
}

std::vector<Choice> staged_choices(const GemmProblem& p) {
  std::vector<Choice> found;
  for (const uint32_t strip : {1, 2, 3, 5, 7, 14}) {
    for (const uint32_t n : {16, 32}) {
      for (const uint32_t ahead : {1, 3}) {
        const Spec spec{.family = KernelFamily::direct, .tile_m = strip, .tile_n = n, .ahead = ahead};
        if (const auto choice = make_choice(p, h100(), spec)) found.push_back(*choice);
      }
    }
  }
  return found;
}

/// Where a CTA has a line: which image's, and which pixel along it, as they are copied.
struct Place {
  uint32_t image;
  int32_t x;
};
Place place_of(const GemmConfig& c, const DirectShape& shape, uint32_t first_strip, uint32_t at) {
  uint32_t image = 0, along = 0;
  shape.columns.divmod(first_strip, image, along);
  const uint32_t from = along * staged_step(c) + at, line = staged_image_line(c, shape.columns.divisor);
  return {image + from / line, first_gathered(Conv::wgrad, c.direct.width, 0, shape.pad[1]) + int32_t(from % line)};
}

TEST(DirectStagedWgrad, StripsFindTheirPixelsInTheLine) {
  Random random(17);
  size_t served = 0;
  for (int round = 0; round < 60; ++round) {
    const GemmProblem p =
        depthwise(Conv::wgrad, draw_axis(random, 3), draw_axis(random, 3), 32, 1, random.number(1, 9));
    for (const Choice& choice : staged_choices(p)) {
      SCOPED_TRACE(text(p.conv) + " " + to_string(choice.spec));
      ++served;
      const GemmConfig& c = choice.config;
      const DirectShape shape = direct_shape(choice);
      const uint32_t places = direct_places(c), strips = shape.images * shape.columns.divisor;
      EXPECT_EQ(shape.tiles, ceil_div(strips, places) * shape.made[0]);
      for (uint32_t strip = 0; strip < strips; ++strip) {
        const uint32_t first = strip / places * places;
        uint32_t image = 0, along = 0, first_image = 0, first_along = 0;
        shape.columns.divmod(strip, image, along);
        shape.columns.divmod(first, first_image, first_along);
        const uint32_t begin = (image - first_image) * staged_image_line(c, shape.columns.divisor) +
                               along * staged_step(c) - first_along * staged_step(c);
        for (uint32_t j = 0; j < c.tile.m; ++j) {
          for (uint32_t tap = 0; tap < c.direct.width.taps; ++tap) {
            const uint32_t at = begin + j * c.direct.width.stride + tap * c.direct.width.dilation;
            ASSERT_LT(at, c.direct.pixels);
            const Place place = place_of(c, shape, first, at);
            ASSERT_EQ(place.image, image);
            ASSERT_EQ(place.x, c.direct.width.map(shape.pad[1]).at(along * c.tile.m + j, tap));
          }
        }
      }
    }
  }
  EXPECT_GT(served, 200u);
}

/// A line's place is another's only when no output meets it any more.
TEST(DirectStagedWgrad, LinesStayUntilTheyAreMet) {
  size_t served = 0;
  for (const int32_t taps : {1, 3, 7}) {
    for (const int32_t stride : {1, 2, 4}) {
      for (const Choice& choice : staged_choices(square(taps, 40, 32, 2, stride))) {
        SCOPED_TRACE(to_string(choice.spec));
        const GemmConfig& c = choice.config;
        const uint32_t slots = staged_pixel_lines(c);
        ++served;
        std::vector<int64_t> held(slots, -1);
        uint32_t sent = 0;
        const auto send = [&](uint32_t lines) {
          for (; lines > 0; --lines, ++sent) held[sent % slots] = sent;
        };
        send(staged_reach(c) - stride + choice.spec.ahead * stride);
        for (uint32_t output = 0; output < 50; ++output) {
          send(stride);  // the next one's, before this one is added
          for (uint32_t tap = 0; tap < c.direct.height.taps; ++tap) {
            const uint32_t line = output * stride + tap * c.direct.height.dilation;
            ASSERT_EQ(held[line % slots], line);
          }
        }
      }
    }
  }
  EXPECT_GT(served, 40u);
}

TEST(DirectStagedWgrad, SlicesHaveEachLineOnce) {
  for (const int64_t slices : {0, 1, 2, 9}) {
    for (const int32_t size : {7, 14, 19, 56}) {
      GemmProblem p = square(7, size, 160);
      p.split_k_slices = slices;
      const auto spec = direct_staged_wgrad_spec(p, h100());
      ASSERT_TRUE(spec);
      EXPECT_LE(spec->tile_n, 32u);
      const auto choice = make_choice(p, h100(), *spec);
      ASSERT_TRUE(choice);
      expect_slices(*choice, slices);
      const DirectShape shape = direct_shape(*choice);
      EXPECT_EQ(choice->blocks, shape.blocks.divisor * choice->spec.slices);
      EXPECT_GE(choice->spec.slices * shape.steps, shape.tiles);
      EXPECT_LT((choice->spec.slices - choice->spec.cluster_k) * shape.steps, shape.tiles);
      EXPECT_GE(shape.blocks.divisor * choice->config.tile.n, 160u);
    }
  }
}

TEST(DirectStagedWgrad, SpillsNothing) {
  std::set<std::string> sources;
  const auto add = [&](const GemmProblem& p, const char* cut) {
    const auto choice = make_choice(p, h100(), *parse_spec(cut));
    ASSERT_TRUE(choice) << cut;
    sources.insert(gemm_source(choice->config));
  };
  for (const char* cut : {"direct 14x32 ahead 2 parallel 3", "direct 16x32 ahead 2", "direct 7x32 ahead 1"}) {
    add(square(7, 28), cut);
    add(square(7, 56, 64, 60, 2), cut);
  }
  add(square(9, 28), "direct 14x32 ahead 2 parallel 3");
  add(square(11, 28), "direct 16x32 ahead 2");
  const ConvAxis axis{.size = 28, .filter = 3, .pad_begin = 1, .pad_end = 1};
  add(depthwise(Conv::wgrad, axis, axis, 64, 2), "direct 7x32 ahead 2");
  const ConvAxis seven{.size = 28, .filter = 7, .pad_begin = 3, .pad_end = 3};
  add(depthwise(Conv::wgrad, seven, seven, 64, 1, 8, DType::f32), "direct 14x32 ahead 2");
  for (const char* arch : {"sm_80", "sm_90a"}) expect_no_spills(sources, arch, 128);
}

TEST(DirectStagedWgrad, CutsOfATunedFileMayBeAnything) {
  const GemmProblem p = square(7, 28);
  EXPECT_TRUE(serves(p, "direct 14x32 ahead 2 parallel 2"));
  for (const char* cut : {"direct 0x32 ahead 2", "direct 17x32 ahead 2", "direct 14x0 ahead 2", "direct 14x20 ahead 2",
                          "direct 14x4096 ahead 2", "direct 14x32 ahead 9", "direct 14x32 ahead 2 serial 2",
                          "direct 14x32 ahead 2 parallel 100000", "direct 14x32 gather ahead 2"})
    EXPECT_FALSE(serves(p, cut)) << cut;
  EXPECT_FALSE(serves(square(7, 28, 36), "direct 14x32 ahead 2")) << "no 16 bytes at once";
  // Two images' bytes are more than 32 bits count.
  EXPECT_FALSE(serves(square(7, 1 << 13, 64, 2), "direct 14x32 ahead 2"));
}

TEST(DirectStagedWgrad, IsChosenWhereItWasFaster) {
  static const DeviceInfo h200 = device_info(kPlanOnlyH200);
  const auto takes_it = [](const GemmProblem& p) {
    return cheapest(p, h200, Kernels::all).choice->config.direct.method;
  };
  for (const auto& [images, size, channels] : {std::array{60, 14, 448}, {50, 28, 160}}) {
    EXPECT_EQ(takes_it(square(7, size, channels, images)), DirectMethod::staged);
    EXPECT_NE(takes_it(square(3, size, channels, images)), DirectMethod::staged);
    EXPECT_NE(takes_it(square(5, size, channels, images)), DirectMethod::staged);
  }
}

}  // namespace
}  // namespace cleave

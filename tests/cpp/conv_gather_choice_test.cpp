// Convolutions whose pixels threads fetch, put together where they are narrow.
#include <gtest/gtest.h>

#include "cleave/config/loads.h"
#include "cleave/core/math.h"
#include "conv_choice.h"

namespace cleave {
namespace {

TEST(ConvGather, FewChannelsAreGatheredByThreads) {
  for (const Conv kind : {Conv::fprop, Conv::wgrad}) {
    const GemmProblem stem = problem(layer(kind, 8, 64));
    const auto choice = choose(stem, "sm90 64x64 gather");
    ASSERT_TRUE(choice.has_value());
    EXPECT_EQ(choice->problem, stem) << "taps without a gap, no batch of them";
    EXPECT_EQ(choice->config.tile.k, 64u);
    const uint32_t elements = kind == Conv::fprop ? 9 * 8 : 8 * 14 * 14;
    EXPECT_EQ(choice->schedule.k_blocks, ceil_div(elements, 64u));
    EXPECT_FALSE(serves(stem, "sm90 64x64 gather multicast 2x1"));
    EXPECT_FALSE(serves(stem, "portable 64x64 gather"));
    // Threads know no limits of im2col, and no groups.
    ConvLayout far = layer(kind, 8, 64);
    far.axes[2] = {.size = 400, .filter = 2, .stride = 9, .pad_begin = 200, .pad_end = 200};
    EXPECT_TRUE(serves(problem(far), "sm90 64x64 gather"));
    EXPECT_FALSE(serves(problem(far), "sm90 64x64"));
    EXPECT_TRUE(serves(problem(layer(kind, 8, 64), 4), "sm90 64x64 gather"));
  }
}

TEST(ConvGather, GradientsOfFewFiltersAreGatheredByThreads) {
  const GemmProblem p = problem(layer(Conv::dgrad, 64, 32));
  const auto choice = choose(p, "sm90 128x64 gather");
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->config.schedule.grouping, Grouping::classes);
  EXPECT_FALSE(has_map_a(choice->config) || has_map_b(choice->config));
  // Classes of 4, 2, 2 and 1 taps of 32 filters, 64 a block; 8 * 14 * 14 rows each.
  EXPECT_EQ(choice->schedule.k_blocks, ceil_div(2u + 1 + 1 + 1, 4u));
  // Ten filters are put together; the filters themselves come in pieces of 16 bytes.
  const auto head = choose(problem(layer(Conv::dgrad, 64, 10)), "sm90 128x64 gather");
  ASSERT_TRUE(head.has_value());
  EXPECT_EQ(head->config.operands.load_bytes_a, 4u);
  EXPECT_EQ(head->config.operands.load_bytes_b, 16u);
  EXPECT_FALSE(serves(problem(layer(Conv::dgrad, 3, 10)), "sm90 128x64 gather"));
  // Every class brings maps of its own.
  ConvLayout strided = layer(Conv::dgrad, 64, 32);
  strided.axes[1].stride = strided.axes[2].stride = 8;
  EXPECT_FALSE(serves(problem(strided), "sm90 128x64 gather"));
}

TEST(ConvGather, ThreadsPutNarrowPixelsTogether) {
  for (const Conv kind : {Conv::fprop, Conv::wgrad}) {
    for (const auto& [channels, grain] : {std::pair(3, 2u), {2, 4u}, {4, 8u}, {8, 16u}}) {
      const auto choice = choose(problem(layer(kind, channels, 64)), "sm90 64x64 gather");
      ASSERT_TRUE(choice.has_value());
      const GemmConfig& c = choice->config;
      EXPECT_EQ(kind == Conv::fprop ? c.operands.load_bytes_a : c.operands.load_bytes_b, grain);
      EXPECT_EQ(copies_unaligned(c), grain < 16);
      EXPECT_EQ(has_map_a(c), kind == Conv::wgrad);
      EXPECT_EQ(has_map_b(c), kind == Conv::fprop && grain == 16);
    }
    const GemmProblem stem = problem(layer(kind, 3, 64));
    EXPECT_FALSE(serves(stem, "sm90 64x64"));
    EXPECT_FALSE(serves(stem, "sm90 256x128 gather")) << "too many registers";
    EXPECT_FALSE(serves(problem(layer(kind, 3, 64), 1, DType::f32), "sm90 64x64 gather"));
    // Numbers of 16 bits, and of 32.
    ConvLayout wide = layer(kind, 3, 64);
    wide.axes[2].size = 1 << 14;
    EXPECT_FALSE(serves(problem(wide), "sm90 64x64 gather"));
    wide.axes[2].size = 1 << 13;
    EXPECT_TRUE(serves(problem(wide), "sm90 64x64 gather"));
    GemmProblem apart = problem(wide);
    (kind == Conv::fprop ? apart.a : apart.b).stride_row = 1 << 14;
    EXPECT_FALSE(serves(apart, "sm90 64x64 gather"));
    ConvLayout deep = layer(kind, 3, 64);
    deep.axes[0] = deep.axes[1];
    EXPECT_FALSE(serves(problem(deep), "sm90 64x64 gather"));
    deep.images = 0;
    EXPECT_FALSE(serves(problem(deep), "sm90 64x64 gather"));
    // Taps further apart than the image is high, over its padding.
    ConvLayout apart_taps = layer(kind, 30, 64);
    apart_taps.axes[1] = {.size = 16, .filter = 2, .pad_begin = 4000, .dilation = 4000};
    apart_taps.axes[2] = {.size = 16000, .filter = 1};
    EXPECT_FALSE(serves(problem(apart_taps), "sm90 64x64 gather"));
    // Pixels that far out in the padding.
    ConvLayout padded = layer(kind, 30, 64);
    padded.axes[1].pad_end = 40000;
    EXPECT_FALSE(serves(problem(padded), "sm90 64x64 gather"));
  }
  EXPECT_FALSE(serves(problem(layer(Conv::wgrad, 3, 60)), "sm90 64x64 gather")) << "dy comes by TMA";
  EXPECT_TRUE(serves(problem(layer(Conv::fprop, 3, 60)), "sm90 64x64 gather"));
}

}  // namespace
}  // namespace cleave

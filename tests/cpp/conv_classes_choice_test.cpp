// Strided data gradients, class by class of pixels.
#include <gtest/gtest.h>

#include <algorithm>

#include "cleave/core/math.h"
#include "conv_choice.h"
#include "conv_geometry.h"
#include "launch/conv_grid.h"
#include "plan/catalogue/candidates.h"

namespace cleave {
namespace {

TEST(ConvClassesChoice, ClassesWithMaps) {
  const auto strided = [](int32_t height, int32_t width) {
    ConvLayout conv = layer(Conv::dgrad);
    conv.axes[1].stride = height;
    conv.axes[2].stride = width;
    return problem(conv);
  };
  EXPECT_TRUE(mapped(strided(4, 4)));
  EXPECT_FALSE(mapped(strided(4, 5)));
  EXPECT_FALSE(mapped(strided(8, 8)));
  EXPECT_EQ(choose(strided(8, 8), "portable 64x64")->config.conv.class_capacity, 64u);
}

TEST(ConvClassesChoice, ClassesOfSeveralGroups) {
  const GemmProblem one = problem(layer(Conv::dgrad, 64, 64)), four = problem(layer(Conv::dgrad, 64, 64), 4);
  EXPECT_TRUE(choose(one, "sm90 128x128")->config.store.by_tma);
  EXPECT_FALSE(choose(four, "sm90 128x128")->config.store.by_tma);
  EXPECT_TRUE(serves(one, "sm90 128x128 stream_k 1"));
  EXPECT_FALSE(serves(four, "sm90 128x128 stream_k 1"));
  ConvLayout unstrided = layer(Conv::dgrad, 64, 64);
  unstrided.axes[1].stride = unstrided.axes[2].stride = 1;
  EXPECT_TRUE(serves(problem(unstrided, 4), "sm90 128x128 stream_k 1"));
}

// Each pixel of the image is in the class of one part.
TEST(ConvClassesChoice, ManyClassesAreSeveralLaunches) {
  ConvLayout conv = layer(Conv::dgrad, 16, 24);
  conv.axes[1] = {.size = 40, .filter = 5, .stride = 12, .pad_begin = 1};
  conv.axes[2] = {.size = 10, .filter = 12, .stride = 11};
  const GemmProblem p = problem(conv);
  EXPECT_FALSE(serves(p, "sm90 128x128"));
  const Spec spec = parse_spec("portable 64x64").value();
  const auto first = make_choice(p, h100(), spec);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->parts, 2u) << "12 x 10 residues have pixels";
  uint32_t rows = 0, classes = 0;
  for (uint32_t part = 0; part < first->parts; ++part) {
    const auto choice = make_choice(p, h100(), spec, part);
    ASSERT_TRUE(choice.has_value());
    const ConvClasses of_part = deal_classes(choice->config, choice->problem.conv, choice->part);
    EXPECT_LE(of_part.list.size(), kMostClasses);
    EXPECT_TRUE(std::ranges::is_sorted(of_part.list, is_deeper));
    classes += uint32_t(of_part.list.size());
    for (const ConvClass& c : of_part.list) rows += c.rows;
  }
  EXPECT_EQ(classes, 120u);
  EXPECT_EQ(rows, p.m);
  EXPECT_EQ(first->predicted_us, 0);
  EXPECT_EQ(cheapest(p, h100(), Kernels::all).choice->parts, 2u);
}

TEST(ConvClassesChoice, TilesOfClassesAreExact) {
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    ConvLayout conv = draw_geometry(random);
    conv.kind = Conv::dgrad;
    conv.channels = random.number(1, 300);
    conv.filters = random.number(1, 300);
    SCOPED_TRACE(text(conv));
    const auto choice = choose(problem(conv), "portable 64x64");
    ASSERT_TRUE(choice.has_value());
    uint32_t tiles = 0, line = 0, deepest = 0;
    for (const ConvClass& c : find_classes(conv).list) {
      const uint32_t of_class = ceil_div(c.rows, 64u);
      const uint32_t depth = ceil_div(c.taps.size * uint32_t(conv.filters), 64u);
      tiles += of_class;
      line += of_class * depth;
      deepest = std::max(deepest, depth);
    }
    const auto across = uint32_t(ceil_div<int64_t>(conv.channels, 64));
    ASSERT_EQ(choice->schedule.tiles_m, tiles);
    ASSERT_EQ(choice->most_tiles, tiles * across);
    if (choice->config.schedule.grouping == Grouping::classes) {
      ASSERT_EQ(choice->schedule.line, line * across);
    } else {
      ASSERT_EQ(choice->schedule.k_blocks, deepest);
    }
    // No more slices than the deepest class has k blocks.
    const auto sliced = choose(problem(conv), "portable 64x64 serial 1000");
    ASSERT_TRUE(sliced.has_value());
    ASSERT_EQ(sliced->schedule.slices, std::max(deepest, 1u));
  }
}

TEST(ConvClassesChoice, StreamKCutsWhatHasBlocks) {
  ConvLayout conv = layer(Conv::dgrad);
  conv.axes[1].filter = conv.axes[2].filter = 1;
  conv.axes[1].pad_begin = conv.axes[2].pad_begin = 0;
  const auto choice = choose(problem(conv), "sm90 128x128 stream_k 1");
  ASSERT_TRUE(choice.has_value());
  const auto of_class = uint32_t(ceil_div<int64_t>(8 * 14 * 14, 128));
  EXPECT_EQ(choice->most_tiles, 4 * of_class) << "with three classes that only store";
  EXPECT_EQ(choice->schedule.stream_tiles, of_class);
  EXPECT_EQ(choice->schedule.line, of_class * (256 / 64));
}

// A single class that only stores: the walk must still know that it is one.
TEST(ConvClassesChoice, NoTapAtAll) {
  const GemmProblem p =
      problem(along_width(Conv::dgrad, {.size = 1, .filter = 1, .stride = 4, .pad_begin = 1, .pad_end = 2}));
  ASSERT_EQ(find_classes(p.conv).list.size(), 1u);
  ASSERT_EQ(find_classes(p.conv).list[0].taps.size, 0u);
  for (const char* spec : {"sm90 128x128", "portable 64x64", "sm90 128x128 stream_k 1"}) {
    const auto choice = choose(p, spec);
    ASSERT_TRUE(choice.has_value()) << spec;
    EXPECT_EQ(choice->config.schedule.grouping, Grouping::classes);
    EXPECT_EQ(choice->schedule.line, 0u);
    EXPECT_GT(choice->blocks, 0u);
  }
}

}  // namespace
}  // namespace cleave

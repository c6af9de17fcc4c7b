// Convolutions whose pixels come in lines of 64 bytes: which have them, how K and tiles are cut then, and where the
// lines lie.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "canonical_layout.h"
#include "cleave/config/loads.h"
#include "cleave/memory/swizzle.h"
#include "conv_choice.h"
#include "launch/conv_maps.h"
#include "plan/catalogue/candidates.h"
#include "plan/catalogue/listed.h"

namespace cleave {
namespace {

const std::string kHalved = "sm90 128x96 half_lines";

TEST(HalfLines, AreForChannelsThatLeaveHalfOfALineEmpty) {
  for (const Conv kind : kConvs) {
    const auto served = [&](int64_t gathered, int64_t groups = 1, DType type = DType::f16) {
      const bool back = kind == Conv::dgrad;
      const ConvLayout conv = layer(kind, back ? 64 : gathered, back ? gathered : 64);
      return serves(problem(conv, groups, type), kHalved);
    };
    for (const int64_t channels : {32, 96, 160}) EXPECT_TRUE(served(channels)) << channels;
    for (const int64_t channels : {40, 64, 128, 120}) EXPECT_FALSE(served(channels)) << channels;
    EXPECT_EQ(served(80), kind != Conv::wgrad) << "a tap's columns are whole strips";
    EXPECT_FALSE(served(96, 2)) << "a line would reach into the next group";
    EXPECT_FALSE(serves(problem(layer(kind, 96, 96)), kHalved + " gather"));
    EXPECT_FALSE(serves(problem(layer(kind, 96, 96)), "portable 64x64 half_lines"));
    ConvLayout one_tap = layer(kind, 96, 96);
    for (ConvAxis& axis : one_tap.axes) axis.filter = 1;
    EXPECT_FALSE(serves(problem(one_tap), kHalved));
  }
  GemmProblem dense = problem(layer(Conv::fprop, 96, 96));
  dense.conv = {};
  EXPECT_FALSE(serves(dense, kHalved));
}

TEST(HalfLines, AreConsideredWithATileOfTheirColumns) {
  for (const Conv kind : kConvs) {
    const auto all = candidates(problem(layer(kind, 96, 96)), h100());
    const auto place = [&](const std::string& kernel) {
      const auto is_it = [&](const Choice& c) { return to_string(c.spec) == kernel; };
      return std::ranges::find_if(all, is_it) - all.begin();
    };
    const bool back = kind == Conv::wgrad;
    EXPECT_EQ(place("sm90 256x96 half_lines") < std::ssize(all), !back) << "of 96 filters";
    EXPECT_TRUE(back || place(kHalved) < place("sm90 128x96")) << "a quarter less to multiply";
  }
  EXPECT_TRUE(is_listed(*parse_spec(kHalved)));
  EXPECT_FALSE(is_listed(*parse_spec(kHalved + " gather")));
}

// Three lines a tap: two of the three blocks of two taps have a tap's lines each, one has one of both.
TEST(HalfLines, BlocksGoOnFromTapToTap) {
  for (const Conv kind : {Conv::fprop, Conv::dgrad}) {
    const auto halved = choose(problem(layer(kind, 96, 96)), kHalved),
               whole = choose(problem(layer(kind, 96, 96)), "sm90 128x96");
    ASSERT_TRUE(halved && whole);
    const GemmConfig& c = halved->config;
    EXPECT_EQ(c.tile.k, 64u);
    EXPECT_EQ(per_tap(c, halved->problem.conv), 3u);
    EXPECT_EQ(per_tap(whole->config, whole->problem.conv), 2u);
    const ConvClasses classes = deal_classes(c, halved->problem.conv, 0);
    for (const ConvClass& of : classes.list) {
      EXPECT_EQ(of.k_blocks, ceil_div(of.taps.size * 3, 2u));
      EXPECT_LE(of.k_blocks, of.taps.size * 2);
    }
  }
}

TEST(HalfLines, ColumnsOfAWeightGradientRunOverTaps) {
  const auto choice = choose(problem(layer(Conv::wgrad, 96, 96)), "sm90 128x192 half_lines");
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->problem.batch, 1);
  EXPECT_EQ(choice->problem.n, 9 * 96);
  EXPECT_EQ(choice->tiles, ceil_div(9 * 96, 192));
  EXPECT_FALSE(serves(problem(layer(Conv::wgrad, 96, 96)), "sm90 128x96 half_lines multicast 2x1"))
      << "three strips are not shared by two";
}

TEST(HalfLines, MapsAndStagesAgree) {
  for (const Conv kind : kConvs) {
    const auto choice = choose(problem(layer(kind, 96, 96)), kHalved);
    ASSERT_TRUE(choice.has_value());
    const GemmConfig& c = choice->config;
    const Im2colMapShape pixels =
        map_of_pixels(c, choice->problem, {}, deal_classes(c, choice->problem.conv, 0).list.front());
    EXPECT_EQ(pixels.box_channels * 2, 64u);
    EXPECT_EQ(pixels.box_channels, pixel_line(c));
    EXPECT_EQ(kind == Conv::wgrad ? line_bytes_of_b(c) : line_bytes_of_a(c), 64u);
    if (kind == Conv::wgrad) {
      EXPECT_EQ(pixels.box_pixels, c.tile.k);
      continue;
    }
    EXPECT_EQ(pixels.box_pixels, c.tile.m);
    const TensorMapShape filters = map_of_taps(c, choice->problem, {});
    EXPECT_EQ(filters.box[0] * 2, line_bytes_of_b(c));
    EXPECT_EQ(filters.box[1], kind == Conv::fprop ? c.tile.n : pixel_line(c)) << "of one tap";
  }
}

/// As address_of, of an operand that is contiguous along K: rows as wide as the swizzle, in groups of 8.
uint32_t address_along_k(uint64_t descriptor, uint32_t row, uint32_t k) {
  const auto field = [&](int first) { return uint32_t(descriptor >> first & 0x3fff) * 16; };
  const uint32_t mode = uint32_t(descriptor >> 62), width = mode == 1 ? 128 : mode == 2 ? 64 : 32;
  const uint32_t linear = field(0) + row / 8 * field(32) + row % 8 * width + k * 2;
  return linear ^ (linear >> 7 & (width / 16 - 1)) << 4;
}

/// TMA writes each line of K as rows of `Line` bytes of the tile's rows.
template <uint32_t Line>
void expect_lines_where_they_lie(uint32_t rows) {
  constexpr uint32_t kStage = 3 * 1024, kTileK = 64;
  for (uint32_t first = 0; first < rows; first += 64) {
    const uint32_t at = kStage + row_offset_bytes<Major::k, Line>(first, kTileK, DType::f16);
    const uint64_t descriptor = make_descriptor<Major::k, Line>(at, kTileK);
    for (uint32_t row = 0; row < std::min(rows - first, 64u); ++row) {
      for (uint32_t k = 0; k < kTileK; ++k) {
        const uint64_t instruction = descriptor + k_step_bytes<Major::k, Line>(k / 16, rows, DType::f16) / 16;
        const uint32_t written = kStage + k / (Line / 2) * rows * Line + swizzle<Line>(first + row, k % (Line / 2) * 2);
        ASSERT_EQ(address_along_k(instruction, row, k % 16), written)
            << rows << " rows: " << first + row << ", k " << k;
      }
    }
  }
}

TEST(HalfLines, TensorCoresReadThemWhereTheyLie) {
  for (const uint32_t rows : {16, 96, 128, 256}) {
    expect_lines_where_they_lie<64>(rows);
    expect_lines_where_they_lie<128>(rows);
  }
}

}  // namespace
}  // namespace cleave

// Residue classes against brute force: every output and tap that meet a pixel of the image exactly
// once, for any geometry.

#include "cleave/conv/conv_classes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

#include "conv_geometry.h"
#include "launch/conv_grid.h"

namespace cleave {
namespace {

constexpr ConvAxis kNone = {};

/// The numbers of a pixel of x, a tap and a pixel of y.
using Meeting = std::tuple<int64_t, int64_t, int64_t>;

std::set<Meeting> meetings(const ConvLayout& conv) {
  std::set<Meeting> all;
  for_each_meeting(conv, [&](int64_t x, int64_t tap, int64_t y) { all.insert({x, tap, y}); });
  return all;
}

std::vector<ConvClass> classes_of(Conv kind, ConvLayout conv) {
  conv.kind = kind;
  return find_classes(conv).list;
}

/// Looks for the meetings as a kernel does. Each of D's pixels is a row of one class.
template <bool Fast>
void expect_meetings(Conv kind, const ConvLayout& conv, const std::set<Meeting>& wanted) {
  const bool dgrad = kind == Conv::dgrad;
  std::vector<int> stores(dgrad ? image_pixels(conv) : output_pixels(conv));
  std::set<Meeting> seen;
  for (const ConvClass& c : classes_of(kind, conv)) {
    for (uint32_t row = 0; row < c.rows; ++row) {
      const PixelCoord pixel = c.pixels.locate<3, Fast>(row);
      const uint32_t d_row = c.output_row(pixel);
      ASSERT_LT(d_row, stores.size());
      ++stores[d_row];
      for (uint32_t t = 0; t < c.taps.size; ++t) {
        const PixelCoord tap = c.taps.locate<3, Fast>(t);
        ASSERT_EQ(tap.image, 0u);
        int64_t gathered = pixel.image;
        bool inside = true;
        for (uint32_t i = 0; i < kConvAxes; ++i) {
          const int64_t extent = dgrad ? outputs(conv.axes[i]) : conv.axes[i].size;
          const int64_t at = c.axis(i).at(pixel.at[i], tap.at[i]);
          inside = inside && at >= 0 && at < extent;
          gathered = gathered * extent + at;
        }
        if (!inside) continue;
        const uint32_t filter_tap = c.filter_tap(tap);
        const bool fresh =
            seen.insert(dgrad ? Meeting{d_row, filter_tap, gathered} : Meeting{gathered, filter_tap, d_row}).second;
        ASSERT_TRUE(fresh) << "row " << d_row << " and tap " << filter_tap << " twice";
      }
    }
  }
  for (const int count : stores) ASSERT_EQ(count, 1);
  ASSERT_TRUE(seen == wanted) << seen.size() << " pairs, not " << wanted.size();
}

TEST(ConvClasses, EveryPixelAndTapExactlyOnce) {
  Random random(1);
  for (int round = 0; round < 1500; ++round) {
    const ConvLayout conv = draw_geometry(random);
    SCOPED_TRACE(text(conv));
    const std::set<Meeting> wanted = meetings(conv);
    for (const Conv kind : kConvs) {
      expect_meetings<true>(kind, conv, wanted);
      expect_meetings<false>(kind, conv, wanted);
      if (HasFatalFailure()) return;
    }
  }
}

// Nothing is multiplied that only stride keeps from meeting: a class has the taps that reach its
// residue, and no other.
TEST(ConvClasses, TapsOfAClassReachItsResidue) {
  Random random(2);
  for (int round = 0; round < 1500; ++round) {
    const ConvLayout conv = draw_geometry(random);
    SCOPED_TRACE(text(conv));
    for (const ConvClass& c : classes_of(Conv::dgrad, conv)) {
      for (uint32_t t = 0; t < c.taps.size; ++t) {
        int64_t tap = c.filter_tap(c.taps.locate<3, true>(t)), pixel = c.first_output;
        for (uint32_t i = kConvAxes; i-- > 0;) {
          const ConvAxis& a = conv.axes[i];
          const int64_t at = pixel % a.size, tap_at = tap % a.filter;
          ASSERT_EQ((at + a.pad_begin - tap_at * a.dilation) % a.stride, 0);
          pixel /= a.size;
          tap /= a.filter;
        }
      }
    }
  }
}

TEST(ConvClasses, DeepestFirst) {
  Random random(3);
  for (int round = 0; round < 1000; ++round) {
    const auto classes = classes_of(Conv::dgrad, draw_geometry(random));
    ASSERT_TRUE(std::is_sorted(classes.begin(), classes.end(),
                               [](const ConvClass& x, const ConvClass& y) { return x.taps.size > y.taps.size; }));
    for (const ConvClass& c : classes) ASSERT_GT(c.rows, 0u);
  }
}

std::vector<uint32_t> taps_of_classes(const ConvLayout& conv) {
  std::vector<uint32_t> taps;
  for (const ConvClass& c : classes_of(Conv::dgrad, conv)) taps.push_back(c.taps.size);
  return taps;
}

TEST(ConvClasses, ShareTheTaps) {
  const ConvAxis three{.size = 56, .filter = 3, .stride = 2, .pad_begin = 1, .pad_end = 1};
  EXPECT_EQ(taps_of_classes({.images = 1, .axes = {kNone, three, three}}), (std::vector<uint32_t>{4, 2, 2, 1}));
}

TEST(ConvClasses, WithoutTapsOnlyStore) {
  const ConvAxis one{.size = 6, .filter = 1, .stride = 2};
  EXPECT_EQ(taps_of_classes({.images = 2, .axes = {kNone, one, one}}), (std::vector<uint32_t>{1, 0, 0, 0}));
}

TEST(ConvClasses, TapsThatLieAStrideApartAreAllOfOneClass) {
  const ConvAxis dilated{.size = 9, .filter = 3, .stride = 2, .dilation = 2};
  EXPECT_EQ(taps_of_classes({.images = 1, .axes = {kNone, kNone, dilated}}), (std::vector<uint32_t>{3, 0}));
}

TEST(ConvClasses, AreAsManyAsThereIsRoomFor) {
  const ConvAxis eight{.size = 16, .filter = 2, .stride = 8};
  const ConvAxis four{.size = 8, .filter = 2, .stride = 4};
  EXPECT_EQ(taps_of_classes({.images = 1, .axes = {kNone, eight, eight}}).size(), kMostClasses);
  EXPECT_EQ(taps_of_classes({.images = 1, .axes = {four, four, four}}).size(), kMostClasses);
  const ConvAxis many{.size = 100, .filter = 2, .stride = 90};
  EXPECT_EQ(taps_of_classes({.images = 1, .axes = {kNone, many, many}}).size(), 8100u) << "the CPU has all at once";
}

TEST(ConvClasses, AreNoneWhereThereIsNoPixel) {
  const ConvAxis some{.size = 8, .filter = 3, .stride = 2, .pad_begin = 1};
  const ConvAxis too_small{.size = 1, .filter = 3};
  const ConvAxis empty{.size = 0, .filter = 3, .pad_begin = 1, .pad_end = 1};
  for (const Conv kind : kConvs) {
    EXPECT_TRUE(classes_of(kind, {.images = 0, .axes = {kNone, some, some}}).empty());
  }
  EXPECT_TRUE(classes_of(Conv::fprop, {.images = 4, .axes = {kNone, too_small, some}}).empty());
  EXPECT_TRUE(classes_of(Conv::dgrad, {.images = 4, .axes = {kNone, empty, some}}).empty());
}

// As far as a geometry may reach: one pixel behind 2^31 - 2 of padding, and two taps as far apart.
TEST(ConvClasses, NumbersOfTheLargestGeometryFit) {
  const ConvAxis axis{.size = 1, .filter = 2, .pad_begin = INT32_MAX - 1, .dilation = INT32_MAX - 1};
  const ConvLayout conv{.images = 1, .axes = {kNone, kNone, axis}};
  for (const Conv kind : kConvs) {
    const ConvClass c = classes_of(kind, conv).at(0);
    ASSERT_EQ(c.rows, 1u);
    ASSERT_EQ(c.taps.size, 2u);
    for (const uint32_t t : {0, 1}) {
      const PixelCoord tap = c.taps.locate<3, true>(t);
      // Only the filter's second tap meets the pixel.
      EXPECT_EQ(c.axis(2).at(0, tap.at[2]) == 0, c.filter_tap(tap) == 1);
    }
  }
}

TEST(ConvClasses, TilesAndBlocksAreDealtWithoutAGap) {
  Random random(4);
  for (int round = 0; round < 1000; ++round) {
    auto classes = classes_of(Conv::dgrad, draw_geometry(random));
    const auto tile_m = uint32_t(random.number(1, 40)), tile_k = uint32_t(random.number(1, 40));
    const auto channels = uint32_t(random.number(1, 100));
    const bool flattened = random.coin();
    deal_tiles(classes.data(), uint32_t(classes.size()), tile_m, tile_k, channels, flattened);
    const ClassTable table{classes.data(), uint32_t(classes.size())};
    uint32_t tiles = 0, line = 0;
    for (uint32_t i = 0; i < table.count; ++i) {
      const ConvClass& c = classes[i];
      ASSERT_EQ(c.tiles_before, tiles);
      ASSERT_EQ(c.line_before, line);
      // As many as are needed, and the last one is not empty.
      ASSERT_GE(c.tiles * tile_m, c.rows);
      ASSERT_LT((c.tiles - 1) * tile_m, c.rows);
      ASSERT_EQ(c.k_blocks == 0, c.taps.size == 0);
      if (c.k_blocks > 0) {
        const uint32_t parts = flattened ? 1 : c.taps.size;  // that begin with a block of their own
        const uint32_t elements = c.taps.size * channels / parts, blocks = c.k_blocks / parts;
        ASSERT_EQ(blocks * parts, c.k_blocks);
        ASSERT_GE(blocks * tile_k, elements);
        ASSERT_LT((blocks - 1) * tile_k, elements);
      }
      tiles += c.tiles;
      line += c.tiles * c.k_blocks;
      ASSERT_EQ(table.tiles_until(i), tiles);
      ASSERT_EQ(table.line_until(i), line);
    }
  }
}

TEST(ConvClasses, OfTheLargestImage) {
  const ConvAxis axis{.size = INT32_MAX, .filter = 3, .stride = 2};
  const ConvLayout conv{.kind = Conv::dgrad, .images = 1, .axes = {{}, {}, axis}};
  int64_t rows = 0;
  for (const ConvClass& c : find_classes(conv).list) rows += c.rows;
  EXPECT_EQ(rows, INT32_MAX);
}

}  // namespace
}  // namespace cleave

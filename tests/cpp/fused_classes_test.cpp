// Fused residue classes against brute force: every pixel of the image, and every output and tap
// that meet it, exactly once among the rows and columns of one product.

#include "cleave/conv/fused_classes.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <vector>

#include "conv_geometry.h"
#include "launch/conv_grid.h"

namespace cleave {
namespace {

constexpr ConvAxis kNone = {};

/// The numbers of a pixel of the image, a tap and an output.
using Meeting = std::tuple<int64_t, int64_t, int64_t>;

struct Fused {
  bool possible = false;
  ConvClass fused;
  FusedClasses columns;

  explicit Fused(ConvLayout conv) {
    conv.kind = Conv::dgrad;
    const ConvClasses classes = find_classes(conv, true);
    possible = !classes.list.empty();
    if (possible) fused = classes.list.front();
    columns = classes.columns;
  }
};

ConvLayout along_width(const ConvAxis& axis) {
  return {.images = 1, .channels = 1, .axes = {kNone, kNone, axis}};
}

/// As draw_geometry, with dilations that divide the stride.
ConvLayout draw_possible(Random& random) {
  ConvLayout conv = draw_geometry(random);
  conv.channels = random.number(1, 3);
  for (ConvAxis& axis : conv.axes) {
    while (axis.stride % axis.dilation != 0) --axis.dilation;
  }
  return conv;
}

/// The output that a pixel of the fused class meets at a tap; -1 outside.
int64_t output_met(const ConvLayout& conv, const ConvClass& fused, const PixelCoord& pixel, const PixelCoord& tap) {
  int64_t number = pixel.image;
  for (uint32_t i = 0; i < kConvAxes; ++i) {
    const int64_t at = fused.axis(i).at(pixel.at[i], tap.at[i]);
    if (at < 0 || at >= outputs(conv.axes[i])) return -1;
    number = number * outputs(conv.axes[i]) + at;
  }
  return number;
}

/// Walks through the product as a kernel does.
template <bool Fast>
void expect_meetings(const ConvLayout& conv) {
  const Fused all(conv);
  ASSERT_TRUE(all.possible);
  std::set<Meeting> wanted;
  for_each_meeting(conv, [&](int64_t x, int64_t tap, int64_t y) { wanted.insert({x, tap, y}); });

  const int64_t pixels = image_pixels(conv);
  std::vector<int> stores(size_t(pixels * conv.channels));
  std::vector<std::set<Meeting>> seen(size_t(conv.channels));
  const auto columns = uint32_t(all.columns.pixels.residues.size * conv.channels);
  for (uint32_t row = 0; row < all.fused.rows; ++row) {
    const PixelCoord pixel = all.fused.pixels.locate<3, Fast>(row);
    for (uint32_t column = 0; column < columns; ++column) {
      const ColumnCoord coord = all.columns.pixels.locate<3, Fast>(column);
      ASSERT_LT(coord.channel, conv.channels);
      if ((edges(all.fused.pixels, pixel) & all.columns.edges(coord)) != 0) continue;
      const uint32_t d_row = all.fused.output_row(pixel) + all.columns.output_row(coord);
      ASSERT_LT(d_row, pixels);
      ++stores[size_t(d_row * conv.channels + coord.channel)];
      for (uint32_t t = 0; t < all.fused.taps.size; ++t) {
        const PixelCoord tap = all.fused.taps.locate<3, Fast>(t);
        const int64_t number = all.columns.filter_tap(coord, tap);
        const int64_t y = output_met(conv, all.fused, pixel, tap);
        if (number < 0 || y < 0) continue;
        ASSERT_TRUE(seen[coord.channel].insert({d_row, number, y}).second)
            << "pixel " << d_row << " and tap " << number << " twice";
      }
    }
  }
  for (const int count : stores) ASSERT_EQ(count, 1);
  for (const auto& of_channel : seen)
    ASSERT_TRUE(of_channel == wanted) << of_channel.size() << " pairs, not " << wanted.size();
}

TEST(FusedClasses, EveryPixelAndTapExactlyOnce) {
  Random random(1);
  for (int round = 0; round < 1000; ++round) {
    const ConvLayout conv = draw_possible(random);
    SCOPED_TRACE(text(conv));
    expect_meetings<true>(conv);
    expect_meetings<false>(conv);
    if (HasFatalFailure()) return;
  }
}

// No row, and no tap of K at either end, is there for nothing.
TEST(FusedClasses, AreNoLargerThanTheyMust) {
  Random random(2);
  for (int round = 0; round < 1000; ++round) {
    const ConvLayout conv = draw_possible(random);
    SCOPED_TRACE(text(conv));
    const Fused all(conv);
    ASSERT_TRUE(all.possible);
    ASSERT_EQ(all.fused.rows, conv.images * all.fused.pixels.size);
    for (uint32_t i = 0; i < kConvAxes; ++i) {
      const ConvAxis& axis = conv.axes[i];
      ASSERT_EQ(all.fused.pixels.extent[i], (axis.size + axis.stride - 1) / axis.stride);
      const int32_t taps = int32_t(all.fused.taps.extent[i]);
      bool first = taps == 0, last = taps == 0;
      for (int32_t r = 0; r < axis.stride; ++r) {
        const ResidueColumns& of = all.columns.axes[i][r];
        first = first || (of.taps > 0 && of.shift == 0);
        last = last || (of.taps > 0 && of.shift + of.taps == taps);
      }
      ASSERT_TRUE(first && last) << "axis " << i;
    }
  }
}

/// A filter as wide as its stride, whose images need not be whole patches.
ConvLayout draw_patches(Random& random) {
  ConvLayout conv{.images = random.number(1, 2), .channels = random.number(1, 3)};
  const auto axes = uint32_t(random.number(1, 3));
  for (uint32_t i = kConvAxes - axes; i < kConvAxes; ++i) {
    const auto stride = int32_t(random.number(1, axes == 1 ? 40 : axes == 2 ? 11 : 4));
    const auto size = int32_t(stride * random.number(1, 3) + (random.coin() ? random.number(0, stride - 1) : 0));
    conv.axes[i] = {.size = size, .filter = stride, .stride = stride, .pad_end = int32_t(random.number(0, stride - 1))};
  }
  return conv;
}

// The product of dy with the filters as they lie, whatever the stride.
TEST(FusedClasses, ColumnsOfPatchesAreTheFiltersOwn) {
  Random random(5);
  for (int round = 0; round < 1000; ++round) {
    const ConvLayout conv = draw_patches(random);
    SCOPED_TRACE(text(conv));
    const Fused all(conv);
    ASSERT_TRUE(all.possible);
    ASSERT_EQ(all.fused.taps.size, 1u);
    std::set<Meeting> wanted, seen;
    for_each_meeting(conv, [&](int64_t x, int64_t tap, int64_t y) { wanted.insert({x, tap, y}); });
    const int64_t pixels = image_pixels(conv);
    std::vector<int> stores(size_t(pixels * conv.channels));
    for (uint32_t row = 0; row < all.fused.rows; ++row) {
      const PixelCoord pixel = all.fused.pixels.locate<3, true>(row);
      const int64_t y = output_met(conv, all.fused, pixel, {});
      for (uint32_t column = 0; column < taps(conv) * conv.channels; ++column) {
        const ColumnCoord coord = all.columns.pixels.locate<3, true>(column),
                          run = all.columns.lines.locate<3, true>(column);
        ASSERT_EQ(coord.channel, column % conv.channels);
        if ((edges(all.fused.pixels, pixel) & all.columns.edges(coord)) != 0) {
          ASSERT_TRUE((edges(all.fused.pixels, pixel) & all.columns.edges(run)) != 0);
          continue;
        }
        ASSERT_EQ(edges(all.fused.pixels, pixel) & all.columns.edges(run), 0u);
        const int64_t d_row = all.fused.output_row(pixel) + all.columns.output_row(coord);
        ASSERT_LT(d_row, pixels);
        const int64_t at = d_row * conv.channels + coord.channel;
        ASSERT_EQ((all.fused.output_row(pixel) + all.columns.output_row(run)) * conv.channels + run.channel, at);
        ++stores[size_t(at)];
        if (y >= 0 && coord.channel == 0) seen.insert({d_row, column / conv.channels, y});
      }
    }
    for (const int count : stores) ASSERT_EQ(count, 1);
    ASSERT_TRUE(seen == wanted) << seen.size() << " pairs, not " << wanted.size();
  }
}

TEST(FusedClasses, ShareTheOutputs) {
  const ConvAxis three{.size = 56, .filter = 3, .stride = 2, .pad_begin = 1, .pad_end = 1};
  const Fused all({.images = 2, .channels = 8, .axes = {kNone, three, three}});
  ASSERT_TRUE(all.possible);
  EXPECT_EQ(all.fused.rows, 2u * 28 * 28);
  EXPECT_EQ(all.fused.taps.size, 4u) << "two outputs along each axis";
  EXPECT_EQ(all.columns.pixels.residues.size, 4u);
  const ColumnCoord even = all.columns.pixels.locate<2, true>(7), odd = all.columns.pixels.locate<2, true>(8 * 3);
  EXPECT_EQ(all.columns.filter_tap(even, {.at = {0, 0, 0}}), 4) << "the filter's middle";
  EXPECT_EQ(all.columns.filter_tap(even, {.at = {0, 0, 1}}), -1) << "that is its only tap";
  EXPECT_EQ(all.columns.filter_tap(odd, {.at = {0, 0, 0}}), 8);
  EXPECT_EQ(all.columns.filter_tap(odd, {.at = {0, 1, 1}}), 0);
}

TEST(FusedClasses, OfStrideOneAreTheOnlyClass) {
  const ConvAxis three{.size = 9, .filter = 3, .pad_begin = 1, .pad_end = 1};
  ConvLayout conv{.kind = Conv::dgrad, .images = 3, .channels = 5, .axes = {kNone, three, three}};
  const Fused all(conv);
  ASSERT_TRUE(all.possible);
  EXPECT_EQ(all.columns.pixels.residues.size, 1u);
  const auto classes = find_classes(conv).list;
  ASSERT_EQ(classes.size(), 1u);
  EXPECT_EQ(all.fused.rows, classes[0].rows);
  for (uint32_t t = 0; t < 9; ++t) {
    const PixelCoord tap = classes[0].taps.locate<3, true>(t);
    EXPECT_EQ(all.columns.filter_tap({}, tap), int64_t(classes[0].filter_tap(tap)));
  }
}

TEST(FusedClasses, WithoutTapsReadZerosOnly) {
  const Fused all(along_width({.size = 9, .filter = 1, .stride = 3}));
  ASSERT_TRUE(all.possible);
  EXPECT_EQ(all.fused.taps.size, 1u);
  for (uint32_t r = 0; r < 3; ++r) EXPECT_EQ(all.columns.filter_tap({.residue = {0, 0, r}}, {}), r == 0 ? 0 : -1);
}

// The only residue with a tap is that of a pixel that the image is too short for.
TEST(FusedClasses, MayAllBeWithoutTaps) {
  const Fused all(along_width({.size = 2, .filter = 1, .stride = 4, .pad_begin = 1}));
  ASSERT_TRUE(all.possible);
  EXPECT_EQ(all.fused.rows, 1u);
  EXPECT_EQ(all.fused.taps.size, 0u);
}

TEST(FusedClasses, StopWhereTheImageEnds) {
  const Fused all(along_width({.size = 10, .filter = 4, .stride = 4}));
  ASSERT_TRUE(all.possible);
  const auto edges_of = [&](uint32_t r) { return all.columns.edges({.residue = {0, 0, r}}); };
  EXPECT_EQ(edges_of(0), 0u);
  EXPECT_EQ(edges_of(1), 0u);
  EXPECT_EQ(edges_of(2), 4u) << "pixels 2 and 6, but no 10";
  EXPECT_EQ(edges_of(3), 4u);
  EXPECT_EQ(edges(all.fused.pixels, {.at = {0, 0, 1}}) & 4u, 0u);
  EXPECT_EQ(edges(all.fused.pixels, {.at = {0, 0, 2}}) & 4u, 4u);
}

TEST(FusedClasses, DilationsThatDivideTheStrideOnly) {
  const auto possible = [](int32_t stride, int32_t dilation) {
    return Fused(along_width({.size = 20, .filter = 3, .stride = stride, .dilation = dilation})).possible;
  };
  for (int32_t stride = 1; stride <= 8; ++stride) {
    for (int32_t dilation = 1; dilation <= 9; ++dilation)
      EXPECT_EQ(possible(stride, dilation), stride % dilation == 0) << stride << " " << dilation;
  }
}

TEST(FusedClasses, AreAsManyAsThereIsRoomFor) {
  const ConvAxis eight{.size = 16, .filter = 2, .stride = 8};
  const ConvAxis nine{.size = 18, .filter = 2, .stride = 9};
  EXPECT_TRUE(Fused({.images = 1, .axes = {kNone, eight, eight}}).possible);
  EXPECT_FALSE(Fused(along_width(nine)).possible);
}

TEST(FusedClasses, HaveNoRowsWhereThereIsNoPixel) {
  const ConvAxis some{.size = 8, .filter = 3, .stride = 2, .pad_begin = 1};
  const ConvAxis empty{.size = 0, .filter = 3, .stride = 2, .pad_begin = 2, .pad_end = 2};
  EXPECT_EQ(Fused({.images = 0, .axes = {kNone, some, some}}).fused.rows, 0u);
  EXPECT_EQ(Fused({.images = 4, .axes = {kNone, empty, some}}).fused.rows, 0u);
}

// One pixel behind 2^31 - 3 of padding, under a filter of 2^31 - 2 taps.
TEST(FusedClasses, NumbersOfALargeGeometryFit) {
  constexpr int32_t kPad = INT32_MAX - 2;
  const Fused all(along_width({.size = 1, .filter = kPad + 1, .stride = 2, .pad_begin = kPad}));
  ASSERT_TRUE(all.possible);
  ASSERT_EQ(all.fused.rows, 1u);
  ASSERT_EQ(all.fused.taps.size, (1u << 30) - 1);
  // The filter's last tap meets the one output.
  const PixelCoord first = all.fused.taps.locate<3, true>(0);
  EXPECT_EQ(all.fused.axis(2).at(0, first.at[2]), 0);
  EXPECT_EQ(all.columns.filter_tap({}, first), kPad);
  const PixelCoord last = all.fused.taps.locate<3, true>((1u << 30) - 2);
  EXPECT_EQ(all.columns.filter_tap({}, last), 1);
}

// Every channel of every class has a column, class by class.
TEST(FusedClasses, FastAndPlainDivisionAgree) {
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    ConvLayout conv = draw_possible(random);
    conv.channels = random.number(1, (int64_t(1) << 31) / kMostClasses - 1);
    const Fused all(conv);
    ASSERT_TRUE(all.possible);
    const uint32_t columns = all.columns.pixels.residues.size * uint32_t(conv.channels);
    for (int i = 0; i < 50; ++i) {
      const auto column = uint32_t(i == 0 ? columns - 1 : random.number(0, columns - 1));
      const ColumnCoord fast = all.columns.pixels.locate<3, true>(column);
      const ColumnCoord plain = all.columns.pixels.locate<3, false>(column);
      uint32_t back = 0;
      for (uint32_t axis = 0; axis < kConvAxes; ++axis) {
        ASSERT_EQ(fast.residue[axis], plain.residue[axis]);
        ASSERT_LT(plain.residue[axis], uint32_t(conv.axes[axis].stride));
        back = back * uint32_t(conv.axes[axis].stride) + plain.residue[axis];
      }
      ASSERT_EQ(fast.channel, plain.channel);
      ASSERT_EQ(back * uint32_t(conv.channels) + plain.channel, column);
    }
  }
}

}  // namespace
}  // namespace cleave

// The coordinate map against its definition, number by number.

#include "cleave/conv/coord_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "cleave/conv/conv_classes.h"
#include "random.h"

namespace cleave {
namespace {

AxisMap draw_map(Random& random) {
  return {.origin = int32_t(random.number(-12, 3)),
          .row_stride = int32_t(random.number(1, 6)),
          .tap_stride = int32_t(random.number(1, 5))};
}

TEST(AxisMap, RowsAndTapsMeetAtOnePlace) {
  Random random(1);
  for (int round = 0; round < 500; ++round) {
    const AxisMap map = draw_map(random);
    for (int64_t row = 0; row < 12; ++row) {
      for (int64_t tap = 0; tap < 6; ++tap) {
        const int64_t wanted = row * map.row_stride + tap * map.tap_stride + map.origin;
        ASSERT_EQ(map.at(uint32_t(row), uint32_t(tap)), wanted);
        ASSERT_EQ(map.first(uint32_t(row)) + map.way(uint32_t(tap)), wanted);
      }
    }
  }
}

TEST(AxisMap, KnowsTheRowOfAPlace) {
  Random random(2);
  for (int round = 0; round < 500; ++round) {
    const AxisMap map = draw_map(random);
    for (int64_t place = 0; place < 20; ++place) {
      for (int64_t tap = 0; tap < 6; ++tap) {
        std::optional<int64_t> wanted;
        for (int64_t row = -30; row < 40; ++row)  // also before the first
          if (row * map.row_stride + tap * map.tap_stride + map.origin == place) wanted = row;
        ASSERT_EQ(map.meets(uint32_t(place), uint32_t(tap)), wanted.has_value());
        if (wanted) {
          ASSERT_EQ(map.row(uint32_t(place), uint32_t(tap)), *wanted);
        }
      }
    }
  }
}

TEST(AxisMap, FitsTheLargestSpans) {
  constexpr int32_t kMost = 1 << 29;  // that `validate` lets through
  const AxisMap map{.origin = -kMost, .row_stride = kMost, .tap_stride = kMost};
  EXPECT_EQ(map.at(1, 1), kMost);
  EXPECT_TRUE(map.meets(kMost, 1));
  EXPECT_EQ(map.row(kMost, 1), 1);
  EXPECT_FALSE(map.meets(kMost - 1, 1));
}

TEST(AxisMap, InsideIsFromTheFirstPlaceToTheLast) {
  for (const uint32_t extent : {0u, 1u, 7u, uint32_t(INT32_MAX)}) {
    for (const int64_t at : {int64_t(INT32_MIN), int64_t(-1), int64_t(0), int64_t(extent) - 1, int64_t(extent)})
      EXPECT_EQ(is_inside(int32_t(at), extent), at >= 0 && at < extent) << at << " of " << extent;
  }
}

TEST(ConvClass, CountsChannelsTapByTap) {
  Random random(3);
  for (int round = 0; round < 500; ++round) {
    ConvClass map;
    map.taps = Grid(uint32_t(random.number(1, 3)), uint32_t(random.number(1, 4)), uint32_t(random.number(1, 5)));
    const FastDivmod per_tap(uint32_t(random.number(1, 9)));
    uint32_t number = 0;
    for (uint32_t d = 0; d < map.taps.extent[0]; ++d) {
      for (uint32_t h = 0; h < map.taps.extent[1]; ++h) {
        for (uint32_t w = 0; w < map.taps.extent[2]; ++w) {
          for (uint32_t channel = 0; channel < per_tap.divisor; ++channel, ++number) {
            const TapChannel fast = map.find_tap<3, true>(per_tap, number),
                             plain = map.find_tap<3, false>(per_tap, number);
            for (const TapChannel& found : {fast, plain}) {
              ASSERT_TRUE(found.exists);
              ASSERT_EQ(found.channel, channel);
              const uint32_t wanted[] = {d, h, w};
              ASSERT_TRUE(std::equal(wanted, wanted + kConvAxes, found.tap.at));
              ASSERT_EQ(found.tap.image, 0u);
            }
          }
        }
      }
    }
    ASSERT_FALSE((map.find_tap<3, true>(per_tap, number).exists)) << "past the last tap";
  }
}

TEST(Grid, FastAndPlainDivisionAgreeUpToTheLastPixel) {
  Random random(5);
  for (int round = 0; round < 400; ++round) {
    const auto extent = [&](int64_t most) { return uint32_t(random.number(1, most)); };
    const Grid grid(random.coin() ? 1 : extent(40), extent(1000), extent(1000));
    for (int i = 0; i < 50; ++i) {
      const int64_t last = INT32_MAX;
      const auto number = uint32_t(i == 0 ? last : random.number(0, last));
      const PixelCoord fast = grid.locate<3, true>(number), plain = grid.locate<3, false>(number);
      ASSERT_EQ(fast.image, plain.image);
      ASSERT_TRUE(std::equal(fast.at, fast.at + kConvAxes, plain.at));
      uint64_t back = plain.image;
      for (uint32_t axis = 0; axis < kConvAxes; ++axis) {
        ASSERT_LT(plain.at[axis], grid.extent[axis]);
        back = back * grid.extent[axis] + plain.at[axis];
      }
      ASSERT_EQ(back, number);
      if (grid.extent[0] > 1) continue;
      const PixelCoord flat = grid.locate<2, true>(number);
      ASSERT_EQ(flat.image, plain.image);
      ASSERT_TRUE(std::equal(flat.at, flat.at + kConvAxes, plain.at));
    }
  }
}

}  // namespace
}  // namespace cleave

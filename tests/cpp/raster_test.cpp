// Raster: each tile once, in bands.

#include "cleave/schedule/raster.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>

namespace cleave {
namespace {

using Place = std::array<uint32_t, 3>;  // batch, m, n

Place locate(const Raster& raster, uint32_t tile) {
  Place place{};
  raster.locate(tile, place[1], place[2], place[0]);
  return place;
}

TEST(Raster, IsABijection) {
  std::mt19937 random(1);
  const auto number = [&](uint32_t low, uint32_t high) {
    return std::uniform_int_distribution<uint32_t>(low, high)(random);
  };
  for (int round = 0; round < 3000; ++round) {
    const uint32_t tiles_m = number(1, 40), tiles_n = number(1, 40), batches = number(1, 3);
    const uint32_t width = number(0, 45);
    const Raster raster(tiles_m, tiles_n, width, number(0, 1) == 1);
    std::set<Place> seen;
    for (uint32_t tile = 0; tile < tiles_m * tiles_n * batches; ++tile) {
      const Place place = locate(raster, tile);
      ASSERT_EQ(place[0], tile / (tiles_m * tiles_n));
      ASSERT_LT(place[1], tiles_m);
      ASSERT_LT(place[2], tiles_n);
      seen.insert(place);
    }
    ASSERT_EQ(seen.size(), tiles_m * tiles_n * batches) << tiles_m << " x " << tiles_n << " tiles, bands of " << width;
  }
}

// Groups that have tiles of their own number along one dimension share a raster of the other one.
TEST(Raster, IsABijectionInEveryGroup) {
  std::mt19937 random(2);
  const auto number = [&](uint32_t low, uint32_t high) {
    return std::uniform_int_distribution<uint32_t>(low, high)(random);
  };
  for (int round = 0; round < 3000; ++round) {
    const uint32_t across = number(1, 40), steps = number(1, 40), width = number(0, 45);
    const bool by_n = number(0, 1) == 1;
    const Raster raster = by_n ? Raster(across, 1, width, true) : Raster(1, across, width, false);
    const Raster alone = by_n ? Raster(across, steps, width, true) : Raster(steps, across, width, false);
    for (uint32_t tile = 0; tile < across * steps; ++tile) {
      Place place{};
      raster.locate_in_group(tile, steps, place[1], place[2]);
      ASSERT_EQ(place, locate(alone, tile)) << across << " across, bands of " << width;
    }
  }
}

TEST(Raster, BandsAdvanceAcrossThenDown) {
  const Raster raster(2, 5, 2, false);
  const Place expected[] = {{0, 0, 0}, {0, 0, 1}, {0, 1, 0}, {0, 1, 1},  // first band
                            {0, 0, 2}, {0, 0, 3}, {0, 1, 2}, {0, 1, 3},  // second
                            {0, 0, 4}, {0, 1, 4},                        // the narrow last one
                            {1, 0, 0}};
  for (uint32_t tile = 0; tile < std::size(expected); ++tile) {
    EXPECT_EQ(locate(raster, tile), expected[tile]) << tile;
  }
}

TEST(Raster, BandsAlongMAreTheTranspose) {
  const Raster along_n(7, 4, 3, false), along_m(4, 7, 3, true);
  for (uint32_t tile = 0; tile < 56; ++tile) {
    const Place place = locate(along_n, tile);
    EXPECT_EQ(locate(along_m, tile), (Place{place[0], place[2], place[1]}));
  }
}

TEST(Raster, ServesTheLargestTileCount) {
  const uint32_t last = 0x7ffffffe;
  const Raster raster(last + 1, 1, 8, false);
  EXPECT_EQ(locate(raster, last), (Place{0, last, 0}));
}

}  // namespace
}  // namespace cleave

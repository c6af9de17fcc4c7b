// Packed 4-bit weights: each code has a place of its own, and a thread's places are the fragment that WGMMA takes from
// its registers.

#include "cleave/memory/weight_layout.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

namespace cleave {
namespace {

TEST(WeightLayout, EachCodeHasAPlaceAndEachPlaceACode) {
  std::set<uint32_t> taken;  // in units of 4 bits
  for (uint32_t row = 0; row < kWeightBlock; ++row) {
    for (uint32_t column = 0; column < kWeightBlock; ++column) {
      const WeightPlace place = weight_place({row, column});
      EXPECT_EQ(weight_coord(place), (WeightCoord{row, column}));
      EXPECT_TRUE(place.bit_of_byte() == 0 || place.bit_of_byte() == 4);
      taken.insert(place.byte() * 2 + place.bit_of_byte() / 4);
    }
  }
  EXPECT_EQ(taken.size(), kWeightBlockBytes * 2);
  EXPECT_EQ(*taken.rbegin(), kWeightBlockBytes * 2 - 1);
}

// "Register Fragments" of wgmma.mma_async.m64nNk16 in the PTX ISA: the elements a0 to a7 of a thread's four registers,
// with their row and column written as there.
TEST(WeightLayout, AThreadsWordIsWgmmasFragment) {
  for (uint32_t thread = 0; thread < 128; ++thread) {
    const uint32_t warp = thread / 32, group = thread % 32 / 4, in_group = thread % 4;
    for (uint32_t step = 0; step < 4; ++step) {
      std::array<WeightPlace, 8> places;
      for (uint32_t i = 0; i < 8; ++i) {
        const bool upper_rows = i == 0 || i == 1 || i == 4 || i == 5;
        const uint32_t row = 16 * warp + (upper_rows ? group : group + 8);
        const uint32_t column = in_group * 2 + (i & 1) + (i < 4 ? 0 : 8);
        places[i] = weight_place({row, 16 * step + column});
        EXPECT_EQ(places[i].thread, thread);
        EXPECT_EQ(places[i].word, step);
      }
      for (uint32_t reg = 0; reg < 4; ++reg) {
        EXPECT_EQ(places[2 * reg].bit, 4 * reg);
        EXPECT_EQ(places[2 * reg + 1].bit, 4 * reg + 16);
      }
    }
  }
}

// The same of wgmma.mma_async.m64nNk32 of 8-bit types: four elements in each of a thread's registers, of which two
// rows' lie in one word.
TEST(WeightLayout, TwoThreadsWordsAreAFragmentOfBytes) {
  for (uint32_t thread = 0; thread < 128; ++thread) {
    const uint32_t warp = thread / 32, group = thread % 32 / 4, in_group = thread % 4;
    const uint32_t first = weight_quad_thread(thread), selector = weight_quad_selector(thread);
    for (uint32_t i = 0; i < 16; ++i) {
      const uint32_t reg = i / 4, byte = i % 4;
      const uint32_t row = 16 * warp + group + reg % 2 * 8, column = reg / 2 * 16 + in_group * 4 + byte;
      const WeightPlace place = weight_place({row, column});
      const uint32_t selected = selector >> 4 * byte & 15;
      EXPECT_EQ(place.thread, first + selected / 4);
      EXPECT_EQ(place.bit / 8, selected % 4);
      EXPECT_EQ(place.bit % 8, reg % 2 * 4);
      EXPECT_EQ(place.word, reg / 2);
    }
  }
}

TEST(WeightLayout, BytesOfAWord) {
  // Little-endian: the pair of register 1 is in the upper halves of a word's bytes 0 and 2.
  const WeightPlace low = weight_place({8, 0}), high = weight_place({8, 1});
  EXPECT_EQ(low.byte(), 0u);
  EXPECT_EQ(low.bit_of_byte(), 4u);
  EXPECT_EQ(high.byte(), 2u);
  EXPECT_EQ(high.bit_of_byte(), 4u);
}

TEST(WeightLayout, BlocksFollowEachOtherAlongK) {
  constexpr uint64_t n = 130, k = 200;  // 3 x 4 blocks
  EXPECT_EQ(weight_bytes(n, k), 12 * uint64_t(kWeightBlockBytes));
  EXPECT_EQ(weight_bytes(128, 256), 8 * uint64_t(kWeightBlockBytes));
  EXPECT_EQ(weight_bytes(0, k), 0u);
  EXPECT_EQ(weight_block_offset(63, 63, k), 0u);
  EXPECT_EQ(weight_block_offset(0, 64, k), kWeightBlockBytes);
  EXPECT_EQ(weight_block_offset(64, 0, k), 4 * uint64_t(kWeightBlockBytes));
  EXPECT_EQ(weight_block_offset(n - 1, k - 1, k) + kWeightBlockBytes, weight_bytes(n, k));
  // Past 4 GiB.
  EXPECT_EQ(weight_block_offset(64 * 100'000, 0, 64 * 1000), uint64_t(100'000) * 1000 * kWeightBlockBytes);
}

}  // namespace
}  // namespace cleave

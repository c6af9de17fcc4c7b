// Packing of 4-bit weights on the host: every code lands where the layout says, padding included, and comes back.

#include "cleave/weights.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "cleave/error.h"
#include "cleave/memory/weight_layout.h"

namespace cleave {
namespace {

std::vector<uint8_t> random_codes(int64_t count) {
  std::mt19937 random(7);
  std::vector<uint8_t> codes(count);
  for (uint8_t& code : codes) code = random() & 15;
  return codes;
}

uint32_t code_at(const std::vector<uint8_t>& packed, int64_t row, int64_t column, int64_t columns) {
  const WeightPlace place = weight_place({uint32_t(row % kWeightBlock), uint32_t(column % kWeightBlock)});
  return packed[weight_block_offset(row, column, columns) + place.byte()] >> place.bit_of_byte() & 15;
}

TEST(Weights, CodesAreWhereTheLayoutSays) {
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{64, 64}, {128, 192}, {1, 1}, {70, 96}, {200, 33}}) {
    const std::vector<uint8_t> codes = random_codes(rows * columns);
    std::vector<uint8_t> packed(packed_weight_bytes(rows, columns));
    pack_weights(codes.data(), rows, columns, 8, packed.data());
    const int64_t all_rows = weight_extent(rows), all_columns = weight_extent(columns);
    for (int64_t row = 0; row < all_rows; ++row) {
      for (int64_t column = 0; column < all_columns; ++column) {
        const bool inside = row < rows && column < columns;
        ASSERT_EQ(code_at(packed, row, column, columns), inside ? codes[row * columns + column] : 8)
            << row << ", " << column << " of " << rows << " x " << columns;
      }
    }
    std::vector<uint8_t> back(codes.size());
    unpack_weights(packed.data(), rows, columns, back.data());
    EXPECT_EQ(back, codes);
  }
}

TEST(Weights, UpperHalvesOfBytesAreIgnored) {
  const std::vector<uint8_t> codes = random_codes(64 * 64);
  std::vector<uint8_t> dirty = codes, packed(2048), same(2048);
  for (uint8_t& code : dirty) code |= 0xa0;
  pack_weights(codes.data(), 64, 64, 0, packed.data());
  pack_weights(dirty.data(), 64, 64, 0, same.data());
  EXPECT_EQ(packed, same);
}

TEST(Weights, NothingIsServedAndNonsenseIsNot) {
  EXPECT_EQ(packed_weight_bytes(0, 64), 0);
  pack_weights(nullptr, 0, 64, 8, nullptr);
  EXPECT_THROW(packed_weight_bytes(-1, 64), Error);
  uint8_t code = 0, packed[2048];
  EXPECT_THROW(pack_weights(&code, 1, 1, 16, packed), Error);
}

}  // namespace
}  // namespace cleave

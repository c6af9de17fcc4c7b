#include "cleave/weights.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/refuse.h"
#include "cleave/memory/weight_layout.h"
#include "cpu/thread_team.h"

namespace cleave {
namespace {

constexpr uint32_t kWords = kWeightBlockBytes / 4;
constexpr uint32_t kCodesOfAWord = 8;

using Block = std::array<uint8_t, kWeightBlock * kWeightBlock>;  // a byte for each code, by rows

/// Each word's places of its codes in a Block, from the lowest bits up.
constexpr auto kPlaces = [] {
  std::array<std::array<uint16_t, kCodesOfAWord>, kWords> places{};
  for (uint32_t word = 0; word < kWords; ++word) {
    for (uint32_t i = 0; i < kCodesOfAWord; ++i) {
      constexpr uint32_t words_of_a_thread = kWeightThreadBytes / 4;
      const WeightCoord coord = weight_coord({word / words_of_a_thread, word % words_of_a_thread, 4 * i});
      places[word][i] = uint16_t(coord.row * kWeightBlock + coord.column);
    }
  }
  return places;
}();

void pack_block(const Block& codes, uint8_t* packed) {
  for (uint32_t word = 0; word < kWords; ++word) {
    uint32_t bits = 0;
    for (uint32_t i = 0; i < kCodesOfAWord; ++i) bits |= (codes[kPlaces[word][i]] & 15u) << 4 * i;
    std::memcpy(packed + 4 * word, &bits, 4);
  }
}

void unpack_block(const uint8_t* packed, Block& codes) {
  for (uint32_t word = 0; word < kWords; ++word) {
    uint32_t bits;
    std::memcpy(&bits, packed + 4 * word, 4);
    for (uint32_t i = 0; i < kCodesOfAWord; ++i) codes[kPlaces[word][i]] = bits >> 4 * i & 15;
  }
}

void check_sizes(int64_t rows, int64_t columns) {
  if (rows < 0 || columns < 0)
    refuse_value("a weight has {} rows and {} columns; neither may be negative", rows, columns);
}

/// body(first row, first column, rows, columns, offset) for the part of the weight that is in each block, by several
/// threads. `offset` is the block's in the packed weight.
template <class Body>
void for_each_block(int64_t rows, int64_t columns, const Body& body) {
  cpu::run_in_order(cpu::available_threads(), uint32_t(weight_blocks(rows)), [&](uint32_t, uint32_t band) {
    const int64_t row = int64_t(band) * kWeightBlock;
    for (int64_t column = 0; column < columns; column += kWeightBlock) {
      body(row, column, std::min<int64_t>(kWeightBlock, rows - row), std::min<int64_t>(kWeightBlock, columns - column),
           weight_block_offset(row, column, columns));
    }
  });
}

}  // namespace

int64_t packed_weight_bytes(int64_t rows, int64_t columns) {
  check_sizes(rows, columns);
  return int64_t(weight_bytes(rows, columns));
}

void pack_weights(const uint8_t* codes, int64_t rows, int64_t columns, uint8_t padding, uint8_t* packed) {
  check_sizes(rows, columns);
  if (padding > 15) refuse_value("padding is {}; it must be a code, from 0 to 15", padding);
  for_each_block(rows, columns, [&](int64_t row, int64_t column, int64_t height, int64_t width, uint64_t offset) {
    Block block;
    if (height < kWeightBlock || width < kWeightBlock) block.fill(padding);
    for (int64_t i = 0; i < height; ++i) {
      std::memcpy(block.data() + i * kWeightBlock, codes + (row + i) * columns + column, size_t(width));
    }
    pack_block(block, packed + offset);
  });
}

void unpack_weights(const uint8_t* packed, int64_t rows, int64_t columns, uint8_t* codes) {
  check_sizes(rows, columns);
  for_each_block(rows, columns, [&](int64_t row, int64_t column, int64_t height, int64_t width, uint64_t offset) {
    Block block;
    unpack_block(packed + offset, block);
    for (int64_t i = 0; i < height; ++i) {
      std::memcpy(codes + (row + i) * columns + column, block.data() + i * kWeightBlock, size_t(width));
    }
  });
}

}  // namespace cleave

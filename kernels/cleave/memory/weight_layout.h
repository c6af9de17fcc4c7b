// The layout of packed 4-bit weights, which the host writes once and kernels read by whole blocks.
//
// A weight is N x K (outputs x inputs) codes of 4 bits. It is cut into blocks of 64 rows x 64 columns, and the blocks
// of 64 rows follow each other along K:
//
//   uint8 [ceil(N / 64), ceil(K / 64), 2048]
//
// The weight takes M's place in WGMMA and is its operand from registers (A of m64k16), so a block is what a warpgroup's
// 128 threads keep in registers: 16 bytes of each thread, the threads in order. Its word s (little-endian) has the
// thread's codes of the block's columns 16 s to 16 s + 15. Thread t, of warp w = t / 32, with g = t % 32 / 4 and
// c = t % 4, has in register r of the fragment
//
//   row 16 w + g + 8 (r % 2),  columns 16 s + 2 c + 8 (r / 2) and the next one:
//
// in the word, the first at bit 4 r and the second at bit 4 r + 16, so that `word >> 4 * r & 0x000f000f` is the pair,
// in the halves of the register that it is converted to.
#pragma once

#include "cleave/core/macros.h"
#include "cleave/core/math.h"

namespace cleave {

inline constexpr uint32_t kWeightBlock = 64;         // rows of a block, and columns
inline constexpr uint32_t kWeightBlockBytes = 2048;  // 64 x 64 codes
inline constexpr uint32_t kWeightThreadBytes = 16;   // of a thread in a block

/// Blocks that `extent` rows or columns take,
template <class T>
CLEAVE_HD constexpr T weight_blocks(T extent) {
  return ceil_div<T>(extent, kWeightBlock);
}
/// and rows or columns of those.
template <class T>
CLEAVE_HD constexpr T weight_extent(T extent) {
  return round_up<T>(extent, kWeightBlock);
}

// An operand of 8 bits has four neighbouring columns in a register instead (m64k32): 4 c to 4 c + 3 of row
// 16 w + g + 8 (r % 2), and of the instruction's first 16 columns or, r / 2, its last. Those are in word s of two of
// the four threads with that w and g, beside the same columns of the other row: two bytes of each.

/// The first of those threads; the second follows it.
CLEAVE_HD constexpr uint32_t weight_quad_thread(uint32_t thread) {
  return thread / 4 * 4 + thread % 2 * 2;
}
/// __byte_perm's selector of the four bytes of both words.
CLEAVE_HD constexpr uint32_t weight_quad_selector(uint32_t thread) {
  return thread % 4 < 2 ? 0x6420 : 0x7531;
}

/// Where the two rows of a gate and an up projection that make one of D are joined by the product, the weight has them
/// beside each other in a fragment: eight rows of gates, then their eight ups, in turn. The row of the weight that has
/// the `row`th gate, or its up.
template <class T>
CLEAVE_HD constexpr T weight_gate_row(T row, bool is_up) {
  return row / 8 * 16 + row % 8 + (is_up ? 8 : 0);
}
inline constexpr uint32_t kGateRows = 8;  // so many gates at least, and in all a multiple of it

/// Bytes of a packed weight of `n` rows and `k` columns.
CLEAVE_HD constexpr uint64_t weight_bytes(uint64_t n, uint64_t k) {
  return weight_blocks(n) * weight_blocks(k) * kWeightBlockBytes;
}

/// Where the block begins that has row `row` and column `column` of a weight of `k` columns.
CLEAVE_HD constexpr uint64_t weight_block_offset(uint64_t row, uint64_t column, uint64_t k) {
  return (row / kWeightBlock * weight_blocks(k) + column / kWeightBlock) * kWeightBlockBytes;
}

/// A code of a block: by the thread that has it, that thread's word, and the bit of the word where the code begins.
struct WeightPlace {
  uint32_t thread, word, bit;

  /// The same by bytes: the code is the lower half of its byte, or the upper one.
  CLEAVE_HD constexpr uint32_t byte() const { return thread * kWeightThreadBytes + word * 4 + bit / 8; }
  CLEAVE_HD constexpr uint32_t bit_of_byte() const { return bit % 8; }

  CLEAVE_HD friend constexpr bool operator==(const WeightPlace&, const WeightPlace&) = default;
};

struct WeightCoord {
  uint32_t row, column;

  CLEAVE_HD friend constexpr bool operator==(const WeightCoord&, const WeightCoord&) = default;
};

/// Where the code at a row and a column of a block is.
CLEAVE_HD constexpr WeightPlace weight_place(WeightCoord coord) {
  const uint32_t column = coord.column % 16;
  const uint32_t thread = coord.row / 16 * 32 + coord.row % 8 * 4 + column % 8 / 2;
  const uint32_t fragment_register = coord.row % 16 / 8 + column / 8 * 2;
  return {thread, coord.column / 16, 4 * fragment_register + column % 2 * 16};
}

/// Which row and column of the block the code at a place is.
CLEAVE_HD constexpr WeightCoord weight_coord(WeightPlace place) {
  const uint32_t warp = place.thread / 32, lane = place.thread % 32, fragment_register = place.bit % 16 / 4;
  return {warp * 16 + lane / 4 + fragment_register % 2 * 8,
          place.word * 16 + lane % 4 * 2 + fragment_register / 2 * 8 + place.bit / 16};
}

}  // namespace cleave

// WGMMA's shared-memory matrix descriptors for tiles in the 128-byte swizzle.
//
// Layout of a tile (written by TMA, see mainloop/tma_loader.h), E = elements per 128-byte row:
//   K-major   rows of the tile (M or N) are 128-byte rows of E k's; tile_k / E such matrices follow
//             each other
//   MN-major  k's are 128-byte rows of E m's (or n's); tile / E such matrices of tile_k rows follow
//             each other
//
// Descriptor bits (PTX ISA, "Matrix Descriptor Format"): 0-13 address, 16-29 leading offset, 32-45
// stride offset (all in units of 16 bytes), 62-63 swizzle mode (1: 128 bytes).
#pragma once

#include "cleave/core/enums.h"

namespace cleave {

template <Major M>
CLEAVE_HD constexpr uint64_t make_descriptor(uint32_t shared_address, uint32_t tile_k) {
  // Stride offset: from one group of 8 rows to the next. Leading offset (MN-major): from one matrix
  // of 128-byte wide rows to the next; K-major never leaves its 128 bytes within an instruction, so
  // there it is ignored.
  constexpr uint64_t stride = 8 * 128;
  const uint64_t leading = M == Major::mn ? uint64_t(tile_k) * 128 : 16;
  return uint64_t((shared_address & 0x3ffff) >> 4) | (leading >> 4) << 16 | (stride >> 4) << 32 | uint64_t(1) << 62;
}

/// Bytes from one instruction's operand to the next along K (32 bytes' worth of k's, 16 for 16-bit
/// types).
template <Major M>
CLEAVE_HD constexpr uint32_t k_step_bytes(uint32_t step, uint32_t tile_rows, DType type) {
  if constexpr (M == Major::k) {
    const uint32_t in_row = step % 4;  // four steps of 32 bytes make a 128-byte row
    return (step / 4) * tile_rows * 128 + in_row * 32;
  } else {
    return step * (32 / size_of(type)) * 128;
  }
}

/// Bytes from row 0 to row `row` (a multiple of 64) of the tile.
template <Major M>
CLEAVE_HD constexpr uint32_t row_offset_bytes(uint32_t row, uint32_t tile_k, DType type) {
  return M == Major::k ? row * 128 : row / (128 / size_of(type)) * tile_k * 128;
}

}  // namespace cleave

// WGMMA's shared-memory matrix descriptors for swizzled tiles.
//
// Layout of a tile (written by TMA, see mainloop/tma_loader.h, or by threads, narrow_loader.h):
//   K-major   rows of the tile (M or N) are rows of 128 (or 64) bytes of k's; as many such matrices as K has parts
//             follow each other
//   MN-major  k's are rows of m's (or n's) of one strip; strips of tile_k rows follow each other. A strip is as wide
//             as the widest swizzle, of 128, 64 or 32 bytes, that divides the tile's rows (columns)
//
// Descriptor bits (PTX ISA, "Matrix Descriptor Format"): 0-13 address, 16-29 leading offset, 32-45
// stride offset (all in units of 16 bytes), 62-63 swizzle mode (1: 128 bytes, 2: 64, 3: 32).
#pragma once

#include "cleave/core/enums.h"
#include "cleave/memory/swizzle.h"

namespace cleave {

/// Bytes of a row of a strip, or, as a rule, of a K-major matrix, of a tile of `tile_rows` rows of M (or N).
CLEAVE_HD constexpr uint32_t line_bytes(Major major, uint32_t tile_rows, DType type) {
  const uint32_t bytes = tile_rows * size_of(type);
  return major == Major::k || bytes % 128 == 0 ? 128 : bytes % 64 == 0 ? 64 : 32;
}

/// Where byte `byte` of the tile's rows (columns) at k `k` lies in an MN-major stage whose strips are `Width` bytes
/// wide.
template <uint32_t Width>
CLEAVE_HD constexpr uint32_t strip_offset(uint32_t k, uint32_t byte, uint32_t tile_k) {
  return byte / Width * tile_k * Width + swizzle<Width>(k, byte % Width);
}

template <Major M, uint32_t Width>
CLEAVE_HD constexpr uint64_t make_descriptor(uint32_t shared_address, uint32_t tile_k) {
  // Stride offset: from one group of 8 lines to the next. Leading offset (MN-major): from one strip to the next;
  // K-major never leaves its row within an instruction, so there it is ignored.
  constexpr uint64_t stride = 8 * Width, mode = Width == 128 ? 1 : Width == 64 ? 2 : 3;
  const uint64_t leading = M == Major::mn ? uint64_t(tile_k) * Width : 16;
  return uint64_t((shared_address & 0x3ffff) >> 4) | (leading >> 4) << 16 | (stride >> 4) << 32 | mode << 62;
}

/// Bytes from one instruction's operand to the next along K (32 bytes' worth of k's, 16 for 16-bit
/// types).
template <Major M, uint32_t Width>
CLEAVE_HD constexpr uint32_t k_step_bytes(uint32_t step, uint32_t tile_rows, DType type) {
  if constexpr (M == Major::k) {
    constexpr uint32_t kInRow = Width / 32;
    return step / kInRow * tile_rows * Width + step % kInRow * 32;
  } else {
    return step * (32 / size_of(type)) * Width;
  }
}

/// Bytes from row 0 to row `row` (a multiple of 64) of the tile.
template <Major M, uint32_t Width>
CLEAVE_HD constexpr uint32_t row_offset_bytes(uint32_t row, uint32_t tile_k, DType type) {
  return row * (M == Major::k ? Width : tile_k * size_of(type));
}

}  // namespace cleave

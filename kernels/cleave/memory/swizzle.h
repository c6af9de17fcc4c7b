// The swizzle of shared-memory tiles with rows of Width = 128, 64 or 32 bytes. Within each 1024
// (512, 256) bytes, the index of a row's 16-byte piece is XORed with that of the 128-byte line it
// lies in. Eight threads that read the same piece of eight rows then touch all 32 banks once. TMA,
// WGMMA and our own ldmatrix/stmatrix code agree on it, so one formula serves every kernel.
#pragma once

#include "cleave/core/macros.h"

namespace cleave {

/// Byte offset of (row, byte) in a tile that starts at a multiple of 1024 bytes.
template <uint32_t Width = 128>
CLEAVE_HD constexpr uint32_t swizzle(uint32_t row, uint32_t byte) {
  return row * Width + (byte ^ (row * Width / 128 % (Width / 16)) << 4);
}

}  // namespace cleave

// The 128-byte swizzle: inside each 1024-byte block of eight 128-byte rows, the 16-byte piece `p`
// of row `r` lies at piece p ^ r. Eight threads that read the same piece of eight rows then touch
// all 32 banks once. TMA, WGMMA and our own ldmatrix/stmatrix code agree on it, so one formula
// serves every kernel.
#pragma once

#include "cleave/core/config.h"

namespace cleave {

/// Byte offset of (row, byte) in a tile of 128-byte rows that starts at a multiple of 1024 bytes.
CLEAVE_HD constexpr uint32_t swizzle_128b(uint32_t row, uint32_t byte) {
  return row * 128 + (byte ^ ((row & 7) << 4));
}

}  // namespace cleave

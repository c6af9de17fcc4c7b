// The boxes in which TMA loads operands: fixed by the host's tensor maps, relied on by the kernel's
// loader.
#pragma once

#include "cleave/core/enums.h"

namespace cleave {

/// 128-byte rows in one TMA box of an operand whose tile is shared by `sharers` blocks (each loads
/// its part for all).
CLEAVE_HD constexpr uint32_t box_rows(Major major, uint32_t tile_rows, uint32_t tile_k,
                                      uint32_t sharers) {
  return major == Major::k ? tile_rows / sharers : tile_k;
}

}  // namespace cleave

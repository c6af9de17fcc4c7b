// The chunks in which D leaves by TMA: their shape is the box of D's tensor map, so the host needs
// it too.
#pragma once

#include "cleave/memory/smem_plan.h"

namespace cleave {

/// Columns of the tile in one chunk: a row-major chunk is 64 columns (128 bytes) wide; a
/// column-major one is 64 rows wide and has up to 64 columns. The host's tensor map of D has this
/// box.
CLEAVE_HD constexpr uint32_t store_chunk_columns(const GemmConfig& c) {
  uint32_t columns = min_of(c.tile_n, 64u);
  while (c.tile_n % columns != 0) columns -= 16;
  return columns;
}

/// Whether the tile's shape allows this path.
CLEAVE_HD constexpr bool store_by_tma_fits(const GemmConfig& c) {
  return size_of(c.d) == 2 && c.tile_n % (c.d_order == Order::row ? 64 : 16) == 0;
}

}  // namespace cleave

// The chunks in which D leaves by TMA, and the boxes in them: a box's shape is that of D's tensor
// map, so the host needs it too.
#pragma once

#include "cleave/config/output.h"
#include "cleave/config/threads.h"

namespace cleave {

/// Columns of the tile in one chunk of 64 rows. A chunk of a column-major D is one box; one of a
/// row-major D is 64 columns (the tile's last one: what is left), cut into boxes side by side. One of sums that are
/// added has 32 float32 columns, or, of a tile of an odd number of eights, all: its rows begin eight banks apart, and
/// need no swizzle.
CLEAVE_HD constexpr uint32_t store_chunk_columns(const GemmConfig& c) {
  if (c.store.adds) return c.tile.n % 32 == 0 ? 32 : c.tile.n;
  uint32_t columns = 64;
  while (c.epilogue.order == Order::column && output_columns(c) % columns != 0) columns -= 16;
  return columns;
}

/// Whether a row of a chunk's box is as wide as a swizzle.
CLEAVE_HD constexpr bool swizzles_chunks(const GemmConfig& c) {
  return !c.store.adds || store_chunk_columns(c) == 32;
}

/// Bytes of a chunk's place: those of 16-bit values have room for 64 columns.
CLEAVE_HD constexpr uint32_t store_chunk_bytes(const GemmConfig& c) {
  return 64 * (c.store.adds ? store_chunk_columns(c) * 4 : 128);
}

/// Chunks that a consumer warpgroup stores of one tile.
CLEAVE_HD constexpr uint32_t store_chunks_of_tile(const GemmConfig& c) {
  return accumulators_per_thread(c) * 2 / c.tile.n * ceil_div(output_columns(c), store_chunk_columns(c));
}

/// Columns of one box: of a row-major D the widest swizzle that divides the tile.
CLEAVE_HD constexpr uint32_t store_box_columns(const GemmConfig& c) {
  uint32_t columns = store_chunk_columns(c);
  while (output_columns(c) % columns != 0) columns /= 2;
  return columns;
}

/// Whether D's type allows this path.
CLEAVE_HD constexpr bool store_by_tma_fits(const GemmConfig& c) {
  return size_of(c.epilogue.d) == 2;
}

}  // namespace cleave

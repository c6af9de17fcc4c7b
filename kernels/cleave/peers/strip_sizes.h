// How a small sum over ranks is cut into strips (strip.h).
#pragma once

#include "cleave/core/math.h"
#include "cleave/peers/arrival.h"

namespace cleave {

inline constexpr uint32_t kStripColumns = 64, kMostStripRows = 64;  // of D
inline constexpr uint32_t kStripThreads = 128;
inline constexpr uint32_t kMostStripVectors = 16;  // of all ranks, that a thread has registers for

/// Blocks of 8 rows of which a thread's sums fill 16 bytes.
CLEAVE_HD constexpr uint32_t blocks_of_vector(uint32_t element_bytes) {
  return 4 / element_bytes;
}
/// Vectors of 16 bytes that a thread sends.
CLEAVE_HD constexpr uint32_t strip_vectors(uint32_t rows, uint32_t element_bytes) {
  return ceil_div(rows, 8 * blocks_of_vector(element_bytes));
}
/// Those that a CTA's place (arrival.h) has room for, and the places, each with a meeting of its own, of a strip.
CLEAVE_HD constexpr uint32_t vectors_of_place(uint32_t ranks) {
  return pushed_pieces(ranks) * kPushingThreads / kStripThreads;
}
CLEAVE_HD constexpr uint32_t strip_places(uint32_t vectors, uint32_t ranks) {
  return ceil_div(vectors, vectors_of_place(ranks));
}

/// Whether a sum of so many ranks can be made so.
CLEAVE_HD constexpr bool fits_strips(int64_t ranks, int64_t rows, int64_t columns, uint32_t element_bytes) {
  if (ranks < 2 || ranks > kMostRanks || rows < 1 || rows > kMostStripRows) return false;
  if (columns < 1 || columns % kStripColumns != 0 || element_bytes < 2) return false;
  const uint32_t vectors = strip_vectors(uint32_t(rows), element_bytes);
  return vectors * ranks <= kMostStripVectors &&
         columns / kStripColumns * strip_places(vectors, uint32_t(ranks)) <= kMostCtas;
}

}  // namespace cleave

// 16-bit D, row by row, straight from registers, in pieces of 16 bytes: where a thread's pairs of a row would each fill
// half of a memory sector. The four threads that hold a row's 32 columns, in pairs of each 8, exchange them: then each
// has 8 neighbours.
#pragma once

#include "cleave/config/output.h"
#include "cleave/config/threads.h"
#include "cleave/epilogue/epilogue_op.h"
#include "cleave/epilogue/transpose_in_quad.h"

namespace cleave {

/// All of a thread's accumulators. D's rows, and their ends, are multiples of 16 bytes.
template <GemmConfig C, class Broadcast>
CLEAVE_DEVICE void store_rows(const GemmParams& p, const Tile<C>& tile, Broadcast& broadcast, const Sums<C>& sums) {
  static_assert(size_of(C.epilogue.d) == 2 && C.epilogue.order == Order::row && !scatters(C) && !gated(C));
  constexpr uint32_t kColBlocks = Fragment<C>::kColBlocks;
  const uint32_t place = threadIdx.x % 4;  // in the quad
  EpilogueOp<C, Broadcast> op(p, tile, broadcast);
  CLEAVE_UNROLL
  for (uint32_t first = 0; first < Fragment<C>::kBlocks; first += min_of(4u, kColBlocks - first % kColBlocks)) {
    const uint32_t blocks = min_of(4u, kColBlocks - first % kColBlocks);
    uint32_t rows[2][4] = {};
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < blocks; ++i) {
      const Sum<C>* const own = sums + (first + i) * 4;
      float values[4];
      op(first + i, own, own, values);
      rows[0][i] = pack_pair(C.epilogue.d, values[0], values[1]);
      rows[1][i] = pack_pair(C.epilogue.d, values[2], values[3]);
    }
    const uint32_t column = tile.col(first) + place * 6;  // from the thread's pair to its 8
    CLEAVE_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      transpose_in_quad(rows[half]);
      const uint32_t row = tile.row(first) + half * 8;
      if (place >= blocks || row >= tile.m_end(p.size) || column >= tile.n_end(p.size)) continue;
      const uint4 v = make_uint4(rows[half][0], rows[half][1], rows[half][2], rows[half][3]);
      *reinterpret_cast<uint4*>(static_cast<char*>(p.epilogue.d) + (row * p.epilogue.d_stride + column) * 2) = v;
    }
  }
  op.done();
}

}  // namespace cleave

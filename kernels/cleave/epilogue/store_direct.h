// D straight from registers to global memory: any strides, any alignment. The path of float32
// outputs (whose 8-byte pairs fill whole 32-byte sectors), of reductions, and of rows that TMA
// cannot address.
#pragma once

#include "cleave/epilogue/finish.h"

namespace cleave {

template <GemmConfig C>
CLEAVE_DEVICE void store_block_direct(const EpilogueParams& p, float (&v)[4], uint32_t row,
                                      uint32_t col, uint32_t batch) {
  finish_block<C>(p, v, row, col, batch);
  char* const d = static_cast<char*>(p.d) + int64_t(batch) * p.d_batch_stride * size_of(C.d);
  CLEAVE_UNROLL
  for (uint32_t half = 0; half < 2; ++half) {
    const uint32_t r = row + half * 8;
    if (r >= p.m || col >= p.n) continue;
    const float first = v[half * 2], second = v[half * 2 + 1];
    char* const at = d + epilogue_offset(C.d_order, p.d_stride, r, col) * size_of(C.d);
    if constexpr (C.d_order == Order::row) {
      const bool paired =
          col + 1 < p.n && (reinterpret_cast<uint64_t>(at) & (2 * size_of(C.d) - 1)) == 0;
      if (paired && C.d == DType::f32) {
        *reinterpret_cast<float2*>(at) = make_float2(first, second);
        continue;
      }
      if (paired) {
        *reinterpret_cast<uint32_t*>(at) = pack_pair(C.d, first, second);
        continue;
      }
    }
    store_element(C.d, at, 0, first);
    if (col + 1 < p.n) store_element(C.d, at, C.d_order == Order::row ? 1 : p.d_stride, second);
  }
}

/// All of a thread's accumulators; (m0, n0) is the tile's first row and column.
template <GemmConfig C>
CLEAVE_DEVICE void store_direct(const EpilogueParams& p, float (&sums)[accumulators_per_thread(C)],
                                const Fragment<C>& fragment, uint32_t m0, uint32_t n0,
                                uint32_t batch) {
  CLEAVE_UNROLL
  for (uint32_t block = 0; block < Fragment<C>::kBlocks; ++block) {
    float v[4] = {sums[block * 4], sums[block * 4 + 1], sums[block * 4 + 2], sums[block * 4 + 3]};
    store_block_direct<C>(p, v, m0 + fragment.row(block), n0 + fragment.col(block), batch);
  }
}

}  // namespace cleave

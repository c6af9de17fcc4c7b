// D straight from registers to global memory: any strides, any alignment. The path of float32
// outputs (whose 8-byte pairs fill whole 32-byte sectors), of reductions, and of rows that TMA
// cannot address.
#pragma once

#include "cleave/epilogue/finish.h"

namespace cleave {

/// Two neighbours in memory at once; `at` is aligned to both.
template <DType D>
CLEAVE_DEVICE void store_pair(void* at, float first, float second) {
  if constexpr (D == DType::f32) {
    *static_cast<float2*>(at) = make_float2(first, second);
  } else if constexpr (size_of(D) == 2) {
    *static_cast<uint32_t*>(at) = pack_pair(D, first, second);
  } else {
    uint8_t pair[2];
    store_element(D, pair, 0, first);
    store_element(D, pair, 1, second);
    *static_cast<uint16_t*>(at) = uint16_t(pair[0] | pair[1] << 8);
  }
}

template <DType D>
CLEAVE_DEVICE void store_pair(void* at, int32_t first, int32_t second) {
  *static_cast<int2*>(at) = make_int2(first, second);
}

template <GemmConfig C>
CLEAVE_DEVICE void store_block_direct(const EpilogueParams& p, Finish<C>& finish,
                                      const Sum<C> (&sums)[4], uint32_t row, uint32_t col,
                                      uint32_t batch) {
  Value<C> v[4];
  finish(sums, row, col, v);
  char* const d = static_cast<char*>(p.d) + int64_t(batch) * p.d_batch_stride * size_of(C.d);
  CLEAVE_UNROLL
  for (uint32_t half = 0; half < 2; ++half) {
    const uint32_t r = row + half * 8;
    if (r >= p.m || col >= p.n) continue;
    const Value<C> first = v[half * 2], second = v[half * 2 + 1];
    char* const at = d + epilogue_offset(C.d_order, p.d_stride, r, col) * size_of(C.d);
    if constexpr (C.d_order == Order::row) {
      if (col + 1 < p.n && (reinterpret_cast<uint64_t>(at) & (2 * size_of(C.d) - 1)) == 0) {
        store_pair<C.d>(at, first, second);
        continue;
      }
    }
    store_element(C.d, at, 0, first);
    if (col + 1 < p.n) store_element(C.d, at, C.d_order == Order::row ? 1 : p.d_stride, second);
  }
}

/// All of a thread's accumulators; (m0, n0) is the tile's first row and column.
template <GemmConfig C>
CLEAVE_DEVICE void store_direct(const EpilogueParams& p, const Sums<C>& sums,
                                const Fragment<C>& fragment, uint32_t m0, uint32_t n0,
                                uint32_t batch) {
  Finish<C> finish(p, batch);
  CLEAVE_UNROLL
  for (uint32_t block = 0; block < Fragment<C>::kBlocks; ++block) {
    const Sum<C> v[4] = {sums[block * 4], sums[block * 4 + 1], sums[block * 4 + 2],
                         sums[block * 4 + 3]};
    store_block_direct<C>(p, finish, v, m0 + fragment.row(block), n0 + fragment.col(block), batch);
  }
  finish.done();
}

}  // namespace cleave

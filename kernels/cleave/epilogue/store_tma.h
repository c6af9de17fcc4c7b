// 16-bit D through shared memory and the copy engine, in chunks of 64 rows of 128 bytes.
//
// Each warpgroup has two chunks: while one drains to global memory the other is filled, and the
// last ones drain under the next tile's mainloop. stmatrix writes them in the 128-byte swizzle, so
// neither side has bank conflicts; for a column-major D its transposing form turns the fragment on
// the way.
#pragma once

#include "cleave/epilogue/finish.h"
#include "cleave/epilogue/store_chunk.h"
#include "cleave/kernel/gemm_params.h"
#include "cleave/memory/swizzle.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/stmatrix.h"
#include "cleave/ptx/tma.h"

namespace cleave {

template <GemmConfig C>
class TmaStore {
 public:
  CLEAVE_DEVICE TmaStore(uint32_t staging, uint32_t warpgroup)
      : staging_(staging + warpgroup * kStagingChunks * kStagingChunkBytes),
        barrier_(1 + warpgroup) {}

  CLEAVE_DEVICE void store(const GemmParams& p, float (&sums)[accumulators_per_thread(C)],
                           const Fragment<C>& fragment, uint32_t m0, uint32_t n0, uint32_t batch) {
    constexpr uint32_t kColumns = store_chunk_columns(C);
    constexpr uint32_t kBlocks = kColumns / 8;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    const bool issuer = threadIdx.x % 128 == 0;
    const uint32_t group_row = m0 + (fragment.row0 / Fragment<C>::kRows) * Fragment<C>::kRows;
    CLEAVE_UNROLL
    for (uint32_t first = 0; first < Fragment<C>::kBlocks; first += kBlocks) {
      const uint32_t chunk = staging_ + next_ * kStagingChunkBytes;
      if (issuer) ptx::tma_store_wait_read<kStagingChunks - 1>();
      ptx::named_barrier_sync(barrier_, 128);
      CLEAVE_UNROLL
      for (uint32_t pair = 0; pair < kBlocks; pair += 2) {
        uint32_t packed[4];
        CLEAVE_UNROLL
        for (uint32_t i = 0; i < 2; ++i) {
          const uint32_t block = first + pair + i;
          float v[4] = {sums[block * 4], sums[block * 4 + 1], sums[block * 4 + 2],
                        sums[block * 4 + 3]};
          finish_block<C>(p.epilogue, v, m0 + fragment.row(block), n0 + fragment.col(block), batch);
          packed[2 * i] = pack_pair(C.d, v[0], v[1]);
          packed[2 * i + 1] = pack_pair(C.d, v[2], v[3]);
        }
        // Lane l addresses row l % 8 of the 8 x 8 matrix l / 8: matrices 0 and 1 are the upper and
        // lower half of the first block, 2 and 3 of the second.
        const uint32_t tile_row = warp * 16 + lane / 8 % 2 * 8, tile_col = (pair + lane / 16) * 8;
        if constexpr (C.d_order == Order::row) {
          ptx::stmatrix<false>(chunk + swizzle_128b(tile_row + lane % 8, tile_col * 2), packed);
        } else {
          ptx::stmatrix<true>(chunk + swizzle_128b(tile_col + lane % 8, tile_row * 2), packed);
        }
      }
      ptx::fence_async_shared();
      ptx::named_barrier_sync(barrier_, 128);
      if (issuer) {
        const uint32_t row = group_row + first / Fragment<C>::kColBlocks * 64;
        const uint32_t col = n0 + first % Fragment<C>::kColBlocks * 8;
        if constexpr (C.d_order == Order::row) {
          ptx::tma_store(&p.map_d, chunk, col, row, batch);
        } else {
          ptx::tma_store(&p.map_d, chunk, row, col, batch);
        }
        ptx::tma_store_commit();
      }
      next_ = (next_ + 1) % kStagingChunks;
    }
  }

  /// Shared memory must outlive the stores that read it.
  CLEAVE_DEVICE static void drain() {
    if (threadIdx.x % 128 == 0) ptx::tma_store_wait_read<0>();
  }

 private:
  uint32_t staging_, barrier_;
  uint32_t next_ = 0;
};

}  // namespace cleave

// Sums that are added to a float32 D, as gradients accumulate: through shared memory, in chunks of 64 rows
// (store_chunk.h), which TMA has L2 add to what is there. No CTA waits for C, and a tile needs no room for all of it
// (docs/notes/2026-11-grouped-gemm.md). DeepGEMM adds its gradients so.
//
// An element is added to once a launch, and so is deterministic. Where alpha is 1 the bits are those of other kernels,
// but that zeros may take the place of subnormal elements and sums (PTX ISA, cp.reduce.async.bulk), and +0 that of -0.
#pragma once

#include "cleave/config/store_chunk.h"
#include "cleave/config/threads.h"
#include "cleave/epilogue/store_direct.h"
#include "cleave/memory/swizzle.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/shared.h"
#include "cleave/ptx/tma.h"

namespace cleave {

/// The chunks of a warpgroup; one is filled while others drain.
template <GemmConfig C>
class AddedStore {
 public:
  CLEAVE_DEVICE AddedStore(uint32_t staging, uint32_t warpgroup)
      : staging_(staging + warpgroup * C.store.chunks * store_chunk_bytes(C)), barrier_(warpgroup_barrier(warpgroup)) {}

  /// Where a launch does more than add to D, threads store it.
  template <class Broadcast>
  CLEAVE_DEVICE void store(const GemmParams& p, const Tile<C>& tile, Broadcast& broadcast, const Sums<C>& sums) {
    if (adds_to_d(C.epilogue, p.epilogue)) {
      add(p, tile, broadcast, sums);
    } else {
      store_direct<C>(p, tile, broadcast, sums);
    }
  }

  /// Shared memory must outlive the additions that read it.
  CLEAVE_DEVICE static void drain() {
    if (threadIdx.x % 128 == 0) ptx::tma_store_wait_read<0>();
  }

 private:
  static constexpr uint32_t kColumns = store_chunk_columns(C), kPerRow = C.tile.n / kColumns;

  /// Byte of a chunk where an element lies.
  CLEAVE_DEVICE static uint32_t place(uint32_t row, uint32_t column) {
    return swizzles_chunks(C) ? swizzle(row, column * 4) : (row * kColumns + column) * 4;
  }

  template <class Broadcast>
  CLEAVE_DEVICE void add(const GemmParams& p, const Tile<C>& tile, Broadcast& broadcast, const Sums<C>& sums) {
    const uint32_t lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
    const bool issuer = threadIdx.x % 128 == 0;
    const uint32_t first_row = tile.m0 + tile.fragment.row0 / Fragment<C>::kRows * Fragment<C>::kRows;
    EpilogueOp<C, Broadcast> op(p, tile, broadcast);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Fragment<C>::kRows / 64 * kPerRow; ++i) {
      const uint32_t column = i % kPerRow * kColumns, chunk = staging_ + next_ * store_chunk_bytes(C);
      if (issuer) ptx::tma_store_wait_read<C.store.chunks - 1>();
      ptx::named_barrier_sync(barrier_, 128);
      CLEAVE_UNROLL
      for (uint32_t x = 0; x < kColumns; x += 8) {
        const uint32_t block = i / kPerRow * Fragment<C>::kColBlocks + (column + x) / 8;
        const Sum<C>* const own = sums + block * 4;
        ElementInputs<C> nothing;  // C is where the sum goes
        nothing.clear();
        float values[4];
        op(block, own, own, nothing, values);
        CLEAVE_UNROLL
        for (uint32_t half = 0; half < 2; ++half)
          ptx::store_shared_pair(chunk + place(row + half * 8, x + lane % 4 * 2), values[2 * half],
                                 values[2 * half + 1]);
      }
      ptx::fence_async_shared();
      ptx::named_barrier_sync(barrier_, 128);
      if (issuer) {
        ptx::tma_add(&p.map_d, chunk, tile.n0 + column, first_row + i / kPerRow * 64, tile.batch);
        ptx::tma_store_commit();
      }
      next_ = next_ + 1 == C.store.chunks ? 0 : next_ + 1;
    }
  }

  uint32_t staging_, barrier_;
  uint32_t next_ = 0;
};

}  // namespace cleave

// C through shared memory: a tile's rows come by bulk copies while it is multiplied, and the next one's as soon as they
// are in registers, while the sums are still stored. With C from global memory a CTA has nothing else to do until it is
// there (docs/notes/2026-11-grouped-gemm.md).
#pragma once

#include "cleave/config/reads_ahead.h"
#include "cleave/config/smem_plan.h"
#include "cleave/epilogue/epilogue.h"
#include "cleave/epilogue/store_direct.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/shared.h"
#include "cleave/ptx/sync.h"
#include "cleave/ptx/tma.h"
#include "cleave/tile/tile.h"

namespace cleave {

/// Whether a tile of a group of K, which may have no rows, adds nothing to D.
template <GemmConfig C>
CLEAVE_DEVICE bool adds_nothing(const GemmParams& p, const WorkTile& work) {
  return work.range.size() == 0 && adds_to_d(C.epilogue, p.epilogue);
}

/// One buffer of a tile's C, and the two barriers that pass it on: full from producers to consumers, empty back.
template <GemmConfig C>
class StagedC {
 public:
  CLEAVE_DEVICE StagedC(const GemmParams& p, uint32_t smem)
      : p_(p), rows_(smem + smem_plan(C).staged_c), full_(smem + smem_plan(C).c_barriers) {}

  /// By one thread, before any other call.
  CLEAVE_DEVICE static void init(uint32_t smem) {
    ptx::mbarrier_init(smem + smem_plan(C).c_barriers, 1);
    ptx::mbarrier_init(smem + smem_plan(C).c_barriers + 8, C.warps.consumers * 4);
  }

  /// Asks for a tile's C once the last one is in registers: thread `thread` of `Threads`.
  template <uint32_t Threads>
  CLEAVE_DEVICE void load(const Tile<C>& tile, uint32_t thread) {
    if (p_.epilogue.beta == 0.0f) return;
    ptx::mbarrier_wait(full_ + 8, parity_ ^ 1);
    parity_ ^= 1;
    const uint32_t m_end = tile.m_end(p_.size), n_end = tile.n_end(p_.size);
    const bool exists = tile.m0 < m_end && tile.n0 < n_end;  // else of a cluster that reaches beyond D
    const uint32_t rows = exists ? min_of(C.tile.m, m_end - tile.m0) : 0;
    const uint32_t bytes = min_of(C.tile.n, n_end - tile.n0) * 4;
    if (thread == 0) ptx::mbarrier_arrive_expect(full_, rows * bytes);
    const float* const c =
        static_cast<const float*>(p_.epilogue.c) + c_offset(C.epilogue, p_.epilogue, {tile.m0, tile.n0, tile.batch});
    for (uint32_t row = thread; row < rows; row += Threads)
      ptx::bulk_load(rows_ + row * staged_c_pitch(C), c + row * p_.epilogue.c_stride, bytes, full_,
                     ptx::CacheHint::evict_first);
  }

  /// Stores what the epilogue makes of a tile's sums. By all consumers.
  template <class Broadcast>
  CLEAVE_DEVICE void store(const Tile<C>& tile, Broadcast& broadcast, const Sums<C>& sums) {
    EpilogueOp<C, Broadcast> op(p_, tile, broadcast);
    constexpr uint32_t kAhead = blocks_ahead(C), kBlocks = Fragment<C>::kBlocks;
    ElementInputs<C> elements[kAhead];
    const bool comes = p_.epilogue.beta != 0.0f;
    if (comes) ptx::mbarrier_wait(full_, parity_);
    CLEAVE_UNROLL
    for (uint32_t block = 0; block < kBlocks; ++block) {
      if (block % kAhead == 0) {
        CLEAVE_UNROLL
        for (uint32_t i = 0; i < kAhead; ++i)
          if (block + i < kBlocks) fetch(tile.fragment, block + i, comes, elements[i]);
        if (block + kAhead >= kBlocks && comes) release();
      }
      store_block_direct<C>(p_, op, block, sums + block * 4, nullptr, elements[block % kAhead]);
    }
    op.done();
  }

 private:
  CLEAVE_DEVICE void fetch(const Fragment<C>& fragment, uint32_t block, bool comes, ElementInputs<C>& elements) const {
    CLEAVE_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t row = fragment.row(block) + half * 8;
      elements.load_shared_c(2 * half, rows_ + row * staged_c_pitch(C) + fragment.col(block) * 4, comes);
    }
  }

  CLEAVE_DEVICE void release() {
    parity_ ^= 1;
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(full_ + 8);
  }

  const GemmParams& p_;
  uint32_t rows_, full_;
  uint32_t parity_ = 0;
};

}  // namespace cleave

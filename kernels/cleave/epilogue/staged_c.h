// C through shared memory: a tile's rows come by bulk copies while it is multiplied, and the next one's as soon as they
// are in registers, while the sums are still stored. With C from global memory a CTA has nothing else to do until it is
// there (docs/notes/2026-11-grouped-gemm.md).
#pragma once

#include "cleave/config/smem_plan.h"
#include "cleave/config/staged_c.h"
#include "cleave/config/threads.h"
#include "cleave/epilogue/epilogue.h"
#include "cleave/epilogue/store_direct.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/sync.h"
#include "cleave/ptx/tma.h"
#include "cleave/tile/tile.h"

namespace cleave {

/// One buffer of a tile's C, and the two barriers that pass it on: full from producers to consumers, empty back. C does
/// not come where beta is 0.
template <GemmConfig C>
class StagedC {
 public:
  static_assert(!stages_c(C) || !stages_output(C), "what is staged on its way out is not this buffer");
  static constexpr uint32_t kProducers = threads_beside(C);

  CLEAVE_DEVICE StagedC(const GemmParams& p, uint32_t smem)
      : p_(p), rows_(smem + smem_plan(C).staged_c), full_(smem + smem_plan(C).c_barriers), empty_(full_ + 8) {}

  /// By one thread, before any other call.
  CLEAVE_DEVICE static void init(uint32_t smem) {
    ptx::mbarrier_init(smem + smem_plan(C).c_barriers, kProducers / 32);
    ptx::mbarrier_init(smem + smem_plan(C).c_barriers + 8, C.warps.consumers * 4);
  }

  /// Asks for a tile's C once the last one is in registers: producer `thread`, by whole warps. Each of these arrives,
  /// also one that asks for no row: it would miss a lap if the others went on without it.
  CLEAVE_DEVICE void load(const Tile<C>& tile, uint32_t thread) {
    if (p_.epilogue.beta == 0.0f) return;
    ptx::mbarrier_wait(empty_, parity_ ^ 1);
    parity_ ^= 1;
    const uint32_t m_end = tile.m_end(p_.size), n_end = tile.n_end(p_.size);
    const bool exists = tile.m0 < m_end && tile.n0 < n_end;  // else of a cluster that reaches beyond D
    const uint32_t rows = exists ? min_of(C.tile.m, m_end - tile.m0) : 0;
    const uint32_t bytes = min_of(C.tile.n, n_end - tile.n0) * 4;
    __syncwarp();
    if (thread == 0) {
      ptx::mbarrier_arrive_expect(full_, rows * bytes);
    } else if (thread % 32 == 0) {
      ptx::mbarrier_arrive(full_);
    }
    const float* const c =
        static_cast<const float*>(p_.epilogue.c) + c_offset(C.epilogue, p_.epilogue, {tile.m0, tile.n0, tile.batch});
    for (uint32_t row = thread; row < rows; row += kProducers)
      ptx::bulk_load(rows_ + row * staged_c_pitch(C), c + row * p_.epilogue.c_stride, bytes, full_,
                     ptx::CacheHint::evict_first);
  }

  /// Stores what the epilogue makes of a tile's sums. By all consumers.
  template <class Broadcast>
  CLEAVE_DEVICE void store(const Tile<C>& tile, Broadcast& broadcast, const Sums<C>& sums) {
    const bool comes = p_.epilogue.beta != 0.0f;
    if (comes) ptx::mbarrier_wait(full_, parity_);
    store_direct<C>(
        p_, tile, broadcast, sums,
        [&](EpilogueOp<C, Broadcast>&, uint32_t block) { return fetch(tile.fragment, block, comes); },
        [&] {
          if (comes) release();
        });
  }

 private:
  CLEAVE_DEVICE ElementInputs<C> fetch(const Fragment<C>& fragment, uint32_t block, bool comes) const {
    ElementInputs<C> elements;
    CLEAVE_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t row = fragment.row(block) + half * 8;
      elements.load_shared_c(2 * half, rows_ + row * staged_c_pitch(C) + fragment.col(block) * 4, comes);
    }
    return elements;
  }

  CLEAVE_DEVICE void release() {
    parity_ ^= 1;
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(empty_);
  }

  const GemmParams& p_;
  uint32_t rows_, full_, empty_;
  uint32_t parity_ = 0;
};

}  // namespace cleave

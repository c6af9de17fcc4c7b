// Parts of a tile that warps of one CTA have made of its k blocks (sliced-K), on their way through shared memory to
// those that finish the tile. Two tiles' worth of room: the others go on meanwhile.
//
// Parts are added up in the order of the warps, so the bits of a sum do not depend on who adds them.
#pragma once

#include "cleave/config/smem_plan.h"
#include "cleave/memory/pipeline.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/shared.h"
#include "cleave/tile/fragment.h"

namespace cleave {

template <GemmConfig C>
class WarpParts {
  static constexpr uint32_t kBlocks = Fragment<C>::kBlocks, kWarps = C.warps.m * C.warps.k;
  static constexpr uint32_t kPartBytes = kBlocks * 32 * 16;  // of a warp
  using Blocks = float[kBlocks][4];

 public:
  CLEAVE_DEVICE explicit WarpParts(uint32_t smem)
      : barriers_(smem + smem_plan(C).barriers), parts_(smem + smem_plan(C).warp_parts + threadIdx.x % 32 * 16) {}

  /// By one thread, before any other call.
  CLEAVE_DEVICE void init() const {
    for (uint32_t i = 0; i < kWarpPartStages; ++i) {
      ptx::mbarrier_init(full(i), kWarps);
      ptx::mbarrier_init(empty(i), C.warps.m);
    }
  }

  /// By every warp: its sums of the next tile.
  template <class PartSums>
  CLEAVE_DEVICE void give(PartSums& sums) {
    ptx::mbarrier_wait(empty(state_.stage), state_.parity ^ 1);
    const Blocks& blocks = reinterpret_cast<Blocks&>(sums);
    CLEAVE_UNROLL
    for (uint32_t block = 0; block < kBlocks; ++block) {
      uint32_t bits[4];
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < 4; ++i) bits[i] = float_bits(blocks[block][i]);
      ptx::store_shared_128(part(warp_) + block * 512, bits);
    }
    arrive(full(state_.stage));
  }

  /// And then by those that finish it, one for each row of warps: the sums of their rows.
  template <class PartSums>
  CLEAVE_DEVICE void take(PartSums& sums) const {
    ptx::mbarrier_wait(full(state_.stage), state_.parity);
    Blocks& blocks = reinterpret_cast<Blocks&>(sums);
    CLEAVE_UNROLL
    for (uint32_t k = 0; k < C.warps.k; ++k) {
      CLEAVE_UNROLL
      for (uint32_t block = 0; block < kBlocks; ++block) {
        uint32_t bits[4];
        ptx::load_shared_128(part(k * C.warps.m + warp_ % C.warps.m) + block * 512, bits);
        CLEAVE_UNROLL
        for (uint32_t i = 0; i < 4; ++i)
          blocks[block][i] = k == 0 ? bits_float(bits[i]) : blocks[block][i] + bits_float(bits[i]);
      }
    }
    arrive(empty(state_.stage));
  }

  /// By every warp, after both.
  CLEAVE_DEVICE void advance() { state_.advance(); }

 private:
  CLEAVE_DEVICE uint32_t full(uint32_t stage) const { return barriers_ + stage * 8; }
  CLEAVE_DEVICE uint32_t empty(uint32_t stage) const { return barriers_ + (kWarpPartStages + stage) * 8; }
  CLEAVE_DEVICE uint32_t part(uint32_t warp) const { return parts_ + (state_.stage * kWarps + warp) * kPartBytes; }

  /// Once a warp, when all its lanes are done.
  CLEAVE_DEVICE static void arrive(uint32_t barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(barrier);
  }

  const uint32_t barriers_, parts_, warp_ = threadIdx.x / 32;
  PipelineState<kWarpPartStages> state_;
};

}  // namespace cleave

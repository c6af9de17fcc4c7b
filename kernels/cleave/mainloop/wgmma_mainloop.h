// The consumer's half of the sm_90a mainloop: one warpgroup multiplies its rows of the tile through
// the stages.
//
// One group of WGMMAs stays in flight while the next k block's barrier is awaited; a stage is
// handed back one block later, when the group that read it is known to be done.
#pragma once

#include "cleave/epilogue/fragment.h"
#include "cleave/memory/descriptor.h"
#include "cleave/memory/pipeline.h"
#include "cleave/memory/smem_plan.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/wgmma.h"

namespace cleave {

template <GemmConfig C>
struct WgmmaMainloop {
  static constexpr uint32_t kWaves =
      Fragment<C>::kRows / 64;  // m64 instructions per step: rows of this warpgroup / 64
  static constexpr uint32_t kSteps = C.tile_k * size_of(C.a) / 32;
  static constexpr uint32_t kSharers = sharers(C);
  using Instruction = ptx::Wgmma<C.a, C.tile_n, C.a_major == Major::mn, C.b_major == Major::mn>;

  uint32_t stage_a, stage_b;  // shared addresses of stage 0, A's at this warpgroup's first row
  uint32_t full, empty;       // barriers of stage 0
  uint32_t first_sharer;      // cluster rank of the first block that shares loads with this one
  PipelineState<C.stages> state;

  /// sums = A @ B over `k_blocks` >= 1 blocks. `issued()` is called when the last instructions are
  /// on their way.
  template <class Issued>
  CLEAVE_DEVICE void run(uint32_t k_blocks, float (&sums)[accumulators_per_thread(C)],
                         Issued issued) {
    auto& waves = reinterpret_cast<float (&)[kWaves][C.tile_n / 2]>(sums);
    uint32_t previous = 0;
    for (uint32_t block = 0; block < k_blocks; ++block) {
      ptx::mbarrier_wait(full + state.stage * 8, state.parity);
      multiply(state.stage, block != 0, waves);
      if (block != 0) {
        ptx::wgmma_wait<1>();
        release(previous);
      }
      previous = state.stage;
      state.advance();
    }
    issued();
    ptx::wgmma_wait<0>();
    CLEAVE_UNROLL
    for (float& sum : sums) ptx::wgmma_pin(sum);
    release(previous);
  }

 private:
  CLEAVE_DEVICE void multiply(uint32_t stage, bool accumulate,
                              float (&waves)[kWaves][C.tile_n / 2]) {
    constexpr SmemPlan kPlan = smem_plan(C);
    const uint64_t a = make_descriptor<C.a_major>(stage_a + stage * kPlan.a_stage, C.tile_k);
    const uint64_t b = make_descriptor<C.b_major>(stage_b + stage * kPlan.b_stage, C.tile_k);
    ptx::wgmma_fence();
    CLEAVE_UNROLL
    for (uint32_t step = 0; step < kSteps; ++step) {
      CLEAVE_UNROLL
      for (uint32_t wave = 0; wave < kWaves; ++wave) {
        const uint32_t a_bytes = k_step_bytes<C.a_major>(step, C.tile_m, C.a) +
                                 row_offset_bytes<C.a_major>(wave * 64, C.tile_k, C.a);
        const uint32_t b_bytes = k_step_bytes<C.b_major>(step, C.tile_n, C.a);
        Instruction::mma(waves[wave], a + a_bytes / 16, b + b_bytes / 16, accumulate || step != 0);
      }
    }
    ptx::wgmma_commit();
  }

  /// Hands the stage back to the producers that fill it: this block's, and its multicast partners'.
  CLEAVE_DEVICE void release(uint32_t stage) {
    const uint32_t lane = threadIdx.x % 32;
    if constexpr (kSharers == 1) {
      if (lane == 0) ptx::mbarrier_arrive(empty + stage * 8);
    } else {
      if (lane < kSharers) ptx::mbarrier_arrive_remote(empty + stage * 8, first_sharer + lane);
    }
  }
};

}  // namespace cleave

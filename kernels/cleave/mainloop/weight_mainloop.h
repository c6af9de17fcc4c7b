// The consumer's half of the sm_90a mainloop where A is a packed weight: one warpgroup makes its rows of A in
// registers, block by block of 64 x 64, and multiplies them through the stages.
//
// While one block is multiplied the next one is made, in other registers. The group of WGMMAs that read them before is
// done by then: one is in flight at a time beside the one that is being issued.
#pragma once

#include "cleave/config/smem_plan.h"
#include "cleave/mainloop/dequantise.h"
#include "cleave/memory/descriptor.h"
#include "cleave/memory/pipeline.h"
#include "cleave/memory/weight_layout.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/shared.h"
#include "cleave/ptx/wgmma_registers.h"
#include "cleave/schedule/schedule.h"
#include "cleave/tile/tile.h"

namespace cleave {

template <GemmConfig C>
struct WeightMainloop {
  static constexpr uint32_t kWaves = Fragment<C>::kRows / kWeightBlock;
  static constexpr uint32_t kAlong = C.tile.k / kWeightBlock;
  static constexpr uint32_t kBlocks = kWaves * kAlong;  // of a warpgroup in a stage
  static_assert(kBlocks % 2 == 0, "two buffers take turns");
  static constexpr uint32_t kSteps = kWeightBlock / 16;
  static constexpr uint32_t kLines = weight_lines(C);
  static constexpr uint32_t kScaleBytes = weight_scale_bytes(C);
  static constexpr uint32_t kSharers = sharers(C);
  static constexpr uint32_t kLineB = line_bytes(C.operands.b_major, C.tile.n, C.operands.b);
  using Wave = float[C.tile.n / 2];
  using Instruction = ptx::WgmmaRegisters<C.operands.b, C.tile.n, C.operands.b_major == Major::mn>;
  using Dequantise = Dequantiser<C>;
  using Row = typename Dequantise::Row;

  const WeightParams& weights;
  uint32_t stage_a, stage_b;  // shared addresses of stage 0, A's at this thread's part of the warpgroup's first block
  uint32_t full, empty;       // barriers of stage 0
  uint32_t scales;            // shared address of stage 0's, at this thread's row 0
  uint32_t zeros;
  uint32_t first_sharer;  // cluster rank of the first CTA that shares loads with this one
  PipelineState<C.tile.stages> state;

  /// `row`: the tile's first of this warpgroup.
  CLEAVE_DEVICE WeightMainloop(const GemmParams& p, uint32_t smem, uint32_t row, uint32_t sharer)
      : weights(p.weights), first_sharer(sharer) {
    constexpr SmemPlan kPlan = smem_plan(C);
    const uint32_t thread = threadIdx.x % 128, own_row = row + thread / 32 * 16 + thread % 32 / 4;
    stage_a = smem + kPlan.a + row * C.tile.k / 2 + thread * kWeightThreadBytes;
    stage_b = smem + kPlan.b;
    full = smem + kPlan.barriers;
    empty = full + C.tile.stages * 8;
    scales = smem + kPlan.scales + own_row * kScaleBytes;
    zeros = smem + kPlan.scales + weight_scale_words(C) * 4 + own_row;
  }

  /// sums = A @ B over the work tile's k blocks, at least one. `issued()` is called when the last instructions are on
  /// their way.
  template <class Issued>
  CLEAVE_DEVICE void run(const WorkTile& work, const Tile<C>&, Sums<C>& sums, Issued issued) {
    auto& waves = reinterpret_cast<Wave(&)[kWaves]>(sums);
    if constexpr (forgets_sums(C)) {
      CLEAVE_UNROLL
      for (float& sum : sums) sum = 0;
    }
    uint32_t fragments[2][kSteps][4];
    uint32_t previous = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < work.k_count; ++i) {
      ptx::mbarrier_wait(full + state.stage * 8, state.parity);
      uint32_t words[kBlocks][kSteps];
      CLEAVE_UNROLL
      for (uint32_t block = 0; block < kBlocks; ++block) load_words(block, words[block]);
      Row rows[kLines][kWaves][2];
      CLEAVE_UNROLL
      for (uint32_t line = 0; line < kLines; ++line) load_rows(work, i, line, rows[line]);
      CLEAVE_UNROLL
      for (uint32_t along = 0; along < kAlong; ++along) {
        CLEAVE_UNROLL
        for (uint32_t wave = 0; wave < kWaves; ++wave) {
          const uint32_t block = along * kWaves + wave;
          auto& fragment = fragments[block % 2];
          CLEAVE_UNROLL
          for (uint32_t step = 0; step < kSteps; ++step) {
            const uint32_t line = (along * kWeightBlock + step * 16) / C.weights.group;
            CLEAVE_UNROLL
            for (uint32_t r = 0; r < 4; ++r)
              fragment[step][r] = Dequantise::pair(words[wave * kAlong + along][step], r, rows[line][wave][r % 2]);
          }
          ptx::wgmma_fence();
          CLEAVE_UNROLL
          for (uint32_t step = 0; step < kSteps; ++step)
            Instruction::mma(waves[wave], fragment[step], operand_b(along * kSteps + step),
                             i != 0 || along + step != 0);
          ptx::wgmma_commit();
          ptx::wgmma_wait<1>();
          keep(fragments[1 - block % 2]);
          if (block == 0 && i != 0) release(previous);
        }
      }
      previous = state.stage;
      state.advance();
    }
    issued();
    ptx::wgmma_wait<0>();
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < accumulators_per_thread(C); ++i) ptx::wgmma_pin(sums[i]);
    release(previous);
  }

 private:
  /// The thread's part of a block of the current stage: blocks lie behind each other along K.
  CLEAVE_DEVICE void load_words(uint32_t block, uint32_t (&words)[kSteps]) const {
    constexpr SmemPlan kPlan = smem_plan(C);
    ptx::load_shared_128(stage_a + state.stage * kPlan.a_stage + block * kWeightBlockBytes, words);
  }

  /// What the thread's rows have in k block `block` of the work tile.
  CLEAVE_DEVICE void load_rows(const WorkTile& work, uint32_t block, uint32_t line, Row (&rows)[kWaves][2]) const {
    constexpr SmemPlan kPlan = smem_plan(C);
    const uint32_t group = first_weight_group<C>(weights, work.k_block(block)) + line;
    const uint32_t from = work.batch * uint32_t(weights.stride_batch) + group * weights.stride_k;
    // What lies before the tile's rows in the words that were copied.
    const uint32_t skip_scale = (from * kScaleBytes + uint32_t(reinterpret_cast<uint64_t>(weights.scales))) % 4;
    const uint32_t skip_zero = (from + uint32_t(reinterpret_cast<uint64_t>(weights.zeros))) % 4;
    const uint32_t stage = state.stage * kPlan.scale_stage + line * weight_line_words(C) * 4;
    CLEAVE_UNROLL
    for (uint32_t wave = 0; wave < kWaves; ++wave) {
      uint32_t scale[2], zero[2];
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t row = wave * kWeightBlock + i * 8, at = scales + stage + row * kScaleBytes + skip_scale;
        scale[i] = kScaleBytes == 1 ? ptx::load_shared_8(at) : ptx::load_shared_16(at);
        zero[i] = C.weights.has_zero ? ptx::load_shared_8(zeros + stage + row + skip_zero) : 8;
      }
      Dequantise::rows(scale, zero, rows[wave]);
    }
  }

  /// B's descriptor for the k block's step `step` of 16.
  CLEAVE_DEVICE uint64_t operand_b(uint32_t step) const {
    constexpr SmemPlan kPlan = smem_plan(C);
    const uint64_t b = make_descriptor<C.operands.b_major, kLineB>(stage_b + state.stage * kPlan.b_stage, C.tile.k);
    return b + k_step_bytes<C.operands.b_major, kLineB>(step, C.tile.n, C.operands.b) / 16;
  }

  /// Nothing else is in these registers until here.
  CLEAVE_DEVICE static void keep(uint32_t (&fragment)[kSteps][4]) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kSteps * 4; ++i) ptx::wgmma_pin(fragment[i / 4][i % 4]);
  }

  /// Hands the stage back to the producers that fill it: this CTA's, and its multicast partners'.
  CLEAVE_DEVICE void release(uint32_t stage) const {
    const uint32_t lane = threadIdx.x % 32;
    if constexpr (kSharers == 1) {
      if (lane == 0) ptx::mbarrier_arrive(empty + stage * 8);
    } else {
      if (lane < kSharers) ptx::mbarrier_arrive_remote(empty + stage * 8, first_sharer + lane);
    }
  }
};

}  // namespace cleave

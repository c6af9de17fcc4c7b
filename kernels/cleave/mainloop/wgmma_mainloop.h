// The consumer's half of the sm_90a mainloop: one warpgroup multiplies its rows of the tile through
// the stages.
//
//   plain      sums stay in the tensor cores' accumulators. One group of WGMMAs is in flight while
//              the next k block's barrier is awaited; a stage is handed back one block later, when
//              the group that read it is known to be done.
//   promoted   every k block is summed apart (promotion.h). Where registers allow two such parts,
//              the next block multiplies while this one is added; else the other warpgroup's
//              multiplications fill the gap. Wide gated tiles take turns with the halves of their columns.
#pragma once

#include "cleave/config/clusters.h"
#include "cleave/config/loads.h"
#include "cleave/config/output.h"
#include "cleave/config/smem_plan.h"
#include "cleave/config/threads.h"
#include "cleave/mainloop/clip.h"
#include "cleave/mainloop/promotion.h"
#include "cleave/memory/descriptor.h"
#include "cleave/memory/pipeline.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/wgmma.h"

namespace cleave {

template <GemmConfig C>
struct WgmmaMainloop {
  static constexpr uint32_t kHalves = multiplies_halves(C) ? 2 : 1;
  // m64 instructions per step: rows of this warpgroup / 64, or halves of the columns
  static constexpr uint32_t kWaves = Fragment<C>::kRows / 64 * kHalves;
  static_assert(kHalves == 1 || Fragment<C>::kRows == 64, "waves' sums follow each other");
  static constexpr uint32_t kSteps = C.tile.k * size_of(C.operands.a) / 32;
  static constexpr uint32_t kSharers = sharers(C);
  static constexpr uint32_t kWaveSums = C.tile.n / 2 / kHalves;
  static constexpr uint32_t kLineA = line_bytes_of_a(C), kLineB = line_bytes_of_b(C);
  static constexpr bool kTwoParts = promotes_two_parts(C);
  // Unrolled, the loop asks for the next k block while sums are still added. Where scales are read after the
  // multiplication, or wide parts are integers, there are no registers for that.
  static constexpr bool kRoomy = !Promotion<C>::kReadsStage && (C.operands.a != DType::i8 || C.tile.n <= 160);
  static constexpr int kUnrollOnePart = kRoomy ? 4 : 1;
  // What was measured for block scales alone (docs/notes/2026-11-scaled-gemm.md). Descriptors and the scales' place are
  // worked out while tensor cores multiply: with one part nothing else covers what lies between a stage's arrival and
  // its first instruction. And a warpgroup whose rows lie behind their group's end hands stages back as they come.
  static constexpr bool kEarly = C.epilogue.scaling == Scaling::block;
  static constexpr bool kSkips = kEarly && C.schedule.grouping == Grouping::m && !C.warps.pingpong;
  using Wave = Sum<C>[kWaveSums];
  using WavePart = Part<C>[kWaveSums];
  using Instruction = ptx::Wgmma<C.operands.a, C.operands.b, C.tile.n / kHalves, C.operands.a_major == Major::mn,
                                 C.operands.b_major == Major::mn>;

  /// Where a k block lies: the lower halves of its operands' descriptors, and the shared addresses of its scales.
  struct Place {
    uint32_t a, b, scales;
  };

  uint32_t stage_a, stage_b;          // shared addresses of stage 0, A's at this warpgroup's first row
  uint32_t first_a = 0, first_b = 0;  // kEarly: the lower halves of their descriptors
  uint32_t full, empty;               // barriers of stage 0
  uint32_t scales;                    // shared address of stage 0's
  uint32_t first_sharer;              // cluster rank of the first CTA that shares loads with this one
  PipelineState<C.tile.stages> state;
  Promotion<C> promotion;

  /// `row`: the tile's first of this warpgroup.
  CLEAVE_DEVICE WgmmaMainloop(const GemmParams&, uint32_t smem, uint32_t row, uint32_t sharer) : first_sharer(sharer) {
    constexpr SmemPlan kPlan = smem_plan(C);
    stage_a = smem + kPlan.a + row_offset_bytes<C.operands.a_major, kLineA>(row, C.tile.k, C.operands.a);
    stage_b = smem + kPlan.b;
    full = smem + kPlan.barriers;
    empty = full + C.tile.stages * 8;
    scales = smem + kPlan.scales;
    if constexpr (kEarly) {
      first_a = uint32_t(make_descriptor<C.operands.a_major, kLineA>(stage_a, C.tile.k));
      first_b = uint32_t(make_descriptor<C.operands.b_major, kLineB>(stage_b, C.tile.k));
    }
  }

  /// sums = A @ B over the work tile's k blocks, at least one. `issued()` is called when the last
  /// instructions are on their way.
  template <class Issued>
  CLEAVE_DEVICE void run(const WorkTile& work, const Tile<C>& tile, Sums<C>& sums, Issued issued) {
    auto& waves = reinterpret_cast<Wave(&)[kWaves]>(sums);
    if constexpr (!C.scales.promote) {
      // The first instruction does not add to the last tile's sums, but names them: they would be kept until then.
      if constexpr (forgets_sums(C)) {
        CLEAVE_UNROLL
        for (Sum<C>& sum : sums) sum = 0;
      }
      run_plain(work, waves, issued);
    } else {
      promotion.start(tile);
      CLEAVE_UNROLL
      for (Sum<C>& sum : sums) sum = 0;
      if (kSkips && is_behind_end(tile)) {
        skip(work);
      } else if constexpr (kTwoParts) {
        run_two_parts(work, waves[0], issued);
      } else {
        run_one_part(work, waves, issued);
      }
    }
  }

 private:
  template <class Issued>
  CLEAVE_DEVICE void run_plain(const WorkTile& work, Wave (&waves)[kWaves], Issued issued) {
    uint32_t previous = 0;
    for (uint32_t block = 0; block < work.k_count; ++block) {
      wait_full(work, block);
      ptx::wgmma_fence();
      CLEAVE_UNROLL
      for (uint32_t step = 0; step < kSteps; ++step) {
        CLEAVE_UNROLL
        for (uint32_t wave = 0; wave < kWaves; ++wave)
          multiply(state.stage, step, wave, waves[wave], block != 0 || step != 0);
      }
      ptx::wgmma_commit();
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
    for (uint32_t wave = 0; wave < kWaves; ++wave) pin(waves[wave]);
    release(previous);
  }

  template <class Issued>
  CLEAVE_DEVICE void run_one_part(const WorkTile& work, Wave (&waves)[kWaves], Issued issued) {
    WavePart part;
    Place place;
    if constexpr (kEarly) place = find_place();
#pragma unroll kUnrollOnePart
    for (uint32_t block = 0; block < work.k_count; ++block) {
      wait_full(work, block);
      const uint32_t stage = state.stage;
      if constexpr (!kEarly) place = find_place();
      const auto scales = promotion.load(place.scales);
      CLEAVE_UNROLL
      for (uint32_t wave = 0; wave < kWaves; ++wave) {
        const bool last = wave + 1 == kWaves;
        start_part(wave, part, place);
        if (last && block + 1 == work.k_count) issued();
        if (last) {
          state.advance();
          if constexpr (kEarly) place = find_place();
        }
        ptx::wgmma_wait<0>();
        pin(part);
        if (last && !Promotion<C>::kReadsStage) release(stage);
        promotion.add(part, waves[wave], wave, scales);
        pin(waves[wave]);
        if (last && Promotion<C>::kReadsStage) release(stage);
      }
    }
  }

  /// Whether the warpgroup has no row. After a vote the compiler knows that a warp agrees, so that what both ways leave
  /// behind stays in uniform registers.
  CLEAVE_DEVICE static bool is_behind_end(const Tile<C>& tile) {
    const uint32_t first = tile.fragment.row0 / Fragment<C>::kRows * Fragment<C>::kRows;
    return __all_sync(0xffffffffu, tile.m0 + first >= tile.group_end);
  }

  CLEAVE_DEVICE void skip(const WorkTile& work) {
    CLEAVE_NO_UNROLL
    for (uint32_t block = 0; block < work.k_count; ++block) {
      ptx::mbarrier_wait(full + state.stage * 8, state.parity);
      release(state.stage);
      state.advance();
    }
  }

  // Straight-line code from one multiplication to its wait: with a branch between them ptxas could
  // not tell which part is in flight, and would serialise them.
  template <class Issued>
  CLEAVE_DEVICE void run_two_parts(const WorkTile& work, Wave& sums, Issued issued) {
    WavePart even, odd;
    uint32_t begun = 1, oldest = state.stage;
    Place place = find_place();
    begin(work, 0, even, place);
    for (; begun + 1 < work.k_count; begun += 2) {
      begin(work, begun, odd, place);
      ptx::wgmma_wait<1>();
      finish(even, sums, oldest);
      begin(work, begun + 1, even, place);
      ptx::wgmma_wait<1>();
      finish(odd, sums, oldest);
    }
    if (begun < work.k_count) {
      begin(work, begun, odd, place);
      issued();
      ptx::wgmma_wait<1>();
      finish(even, sums, oldest);
      ptx::wgmma_wait<0>();
      finish(odd, sums, oldest);
    } else {
      issued();
      ptx::wgmma_wait<0>();
      finish(even, sums, oldest);
    }
  }

  /// Until the work tile's k block `block` is in the current stage.
  CLEAVE_DEVICE void wait_full(const WorkTile& work, uint32_t block) const {
    constexpr SmemPlan kPlan = smem_plan(C);
    ptx::mbarrier_wait(full + state.stage * 8, state.parity);
    // What threads copied, the tensor cores have yet to see.
    if constexpr ((C.conv.gather && !copies_unaligned(C)) || copies_narrow(C) || C.operands.listed)
      ptx::fence_async_shared();
    if constexpr (clips<C>()) {
      const uint32_t b = stage_b + state.stage * kPlan.b_stage;
      const uint32_t a = stage_b - kPlan.b + kPlan.a + state.stage * kPlan.a_stage;
      clip_stage<C>(work, block, a, b);
    }
  }

  CLEAVE_DEVICE void begin(const WorkTile& work, uint32_t block, WavePart& part, Place& place) {
    wait_full(work, block);
    start_part(0, part, place);
    state.advance();
    if constexpr (kEarly) place = find_place();
  }

  /// `stage`: the part's, and then the next one's.
  CLEAVE_DEVICE void finish(WavePart& part, Wave& sums, uint32_t& stage) {
    pin(part);
    const auto scales = promotion.load(scales_of(stage));
    if constexpr (!Promotion<C>::kReadsStage) release(stage);
    promotion.add(part, sums, 0, scales);
    pin(sums);  // added before the part is multiplied anew
    if constexpr (Promotion<C>::kReadsStage) release(stage);
    stage = stage + 1 == C.tile.stages ? 0 : stage + 1;
  }

  CLEAVE_DEVICE uint32_t scales_of(uint32_t stage) const {
    constexpr SmemPlan kPlan = smem_plan(C);
    return scales + stage * kPlan.scale_stage;
  }

  /// One k block of one wave, from zero.
  CLEAVE_DEVICE void start_part(uint32_t wave, WavePart& part, const Place& place) {
    ptx::wgmma_fence();
    CLEAVE_UNROLL
    for (uint32_t step = 0; step < kSteps; ++step) {
      if constexpr (kEarly) {
        multiply_at(place, step, wave, part, step != 0);
      } else {
        multiply(state.stage, step, wave, part, step != 0);
      }
    }
    ptx::wgmma_commit();
  }

  /// Where the k block in the current stage lies.
  CLEAVE_DEVICE Place find_place() const {
    constexpr SmemPlan kPlan = smem_plan(C);
    Place place = {first_a + state.stage * (kPlan.a_stage / 16), first_b + state.stage * (kPlan.b_stage / 16),
                   scales_of(state.stage)};
    // Else the compiler may find it where it is used.
    if constexpr (kEarly) asm volatile("" : "+r"(place.a), "+r"(place.b), "+r"(place.scales));
    return place;
  }

  CLEAVE_DEVICE void multiply_at(const Place& place, uint32_t step, uint32_t wave, WavePart& sums, bool accumulate) {
    constexpr uint64_t kUpperA = make_descriptor<C.operands.a_major, kLineA>(0, C.tile.k) >> 32 << 32;
    constexpr uint64_t kUpperB = make_descriptor<C.operands.b_major, kLineB>(0, C.tile.k) >> 32 << 32;
    Instruction::mma(sums, kUpperA | (place.a + offset_a(step, wave) / 16),
                     kUpperB | (place.b + offset_b(step, wave) / 16), accumulate);
  }

  CLEAVE_HD static constexpr uint32_t offset_a(uint32_t step, uint32_t wave) {
    return k_step_bytes<C.operands.a_major, kLineA>(step, C.tile.m, C.operands.a) +
           row_offset_bytes<C.operands.a_major, kLineA>(wave / kHalves * 64, C.tile.k, C.operands.a);
  }
  CLEAVE_HD static constexpr uint32_t offset_b(uint32_t step, uint32_t wave) {
    return k_step_bytes<C.operands.b_major, kLineB>(step, stage_columns(C), C.operands.b) +
           row_offset_bytes<C.operands.b_major, kLineB>(wave % kHalves * (C.tile.n / kHalves), C.tile.k, C.operands.b);
  }

  CLEAVE_DEVICE void multiply(uint32_t stage, uint32_t step, uint32_t wave, WavePart& sums, bool accumulate) {
    constexpr SmemPlan kPlan = smem_plan(C);
    const uint64_t a = make_descriptor<C.operands.a_major, kLineA>(stage_a + stage * kPlan.a_stage, C.tile.k);
    const uint64_t b = make_descriptor<C.operands.b_major, kLineB>(stage_b + stage * kPlan.b_stage, C.tile.k);
    Instruction::mma(sums, a + offset_a(step, wave) / 16, b + offset_b(step, wave) / 16, accumulate);
  }

  /// Accumulators may be read from here on.
  template <class T>
  CLEAVE_DEVICE static void pin(T (&wave)[kWaveSums]) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kWaveSums; ++i) ptx::wgmma_pin(wave[i]);
  }

  /// Hands the stage back to the producers that fill it: this CTA's, and its multicast partners'.
  CLEAVE_DEVICE void release(uint32_t stage) {
    const uint32_t lane = threadIdx.x % 32;
    if constexpr (C.epilogue.scaling == Scaling::block) __syncwarp();  // every lane has read its scales
    if constexpr (kSharers == 1) {
      if (lane == 0) ptx::mbarrier_arrive(empty + stage * 8);
    } else {
      if (lane < kSharers) ptx::mbarrier_arrive_remote(empty + stage * 8, first_sharer + lane);
    }
  }
};

}  // namespace cleave

// The consumer's half of the sm_90a mainloop where A is a packed weight: one warpgroup makes its rows of A in
// registers, block by block of 64 x 64, and multiplies them through the stages.
//
// While one block is multiplied the next one is made, in other registers. The group of WGMMAs that read them before is
// done by then: one is in flight at a time beside the one that is being issued.
//
//   plain      16-bit elements, scaled as they are made; sums stay in the accumulators.
//   promoted   8-bit elements, made of codes alone. The columns of a group are a part, which is added to float32 sums,
//              times its rows' scales, once the next part's first block is made.
//   short      the same where a group has half of the columns that an instruction multiplies: two instructions do,
//              each with zeros in place of the other's columns. A part is added while the next one is multiplied.
//
// A thread reads its own words of the weight, or, where elements are bytes, two threads' (memory/weight_layout.h).
#pragma once

#include "cleave/config/clusters.h"
#include "cleave/config/output.h"
#include "cleave/config/smem_plan.h"
#include "cleave/config/threads.h"
#include "cleave/memory/descriptor.h"
#include "cleave/memory/pipeline.h"
#include "cleave/memory/weight_layout.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/shared.h"
#include "cleave/ptx/wgmma_registers.h"
#include "cleave/schedule/schedule.h"
#include "cleave/tile/tile.h"
#include "cleave/weights/dequantise.h"

namespace cleave {

template <GemmConfig C>
struct WeightMainloop {
  static constexpr uint32_t kWaves = Fragment<C>::kRows / kWeightBlock;
  static constexpr uint32_t kAlong = C.tile.k / kWeightBlock;
  static constexpr uint32_t kBlocks = kWaves * kAlong;  // of a warpgroup in a stage
  static_assert(kBlocks % 2 == 0, "two buffers take turns");
  static constexpr bool kBytes = size_of(C.operands.b) == 1;
  static constexpr uint32_t kWords = 4;                          // of a thread in a block, of 16 columns each
  static constexpr uint32_t kStep = 32 / size_of(C.operands.b);  // columns of an instruction
  static constexpr uint32_t kSteps = kWeightBlock / kStep;
  static constexpr bool kShort = kBytes && C.weights.group < kStep;
  static constexpr uint32_t kInstructions = kShort ? 2 * kSteps : kSteps;  // of a block
  static_assert(!kShort || C.weights.group * 2 == kStep);
  static constexpr uint32_t kLines = weight_lines(C);
  static constexpr uint32_t kScaleBytes = weight_scale_bytes(C);
  static constexpr uint32_t kSharers = sharers(C);
  static constexpr uint32_t kLineB = line_bytes(C.operands.b_major, C.tile.n, C.operands.b);
  static_assert(kBytes == C.scales.promote);
  using Wave = float[C.tile.n / 2];
  using WavePart = Part<C>[C.tile.n / 2];
  using Instruction = ptx::WgmmaRegisters<C.operands.b, C.tile.n, C.operands.b_major == Major::mn>;
  using Dequantise = Dequantiser<C>;
  using Row = typename Dequantise::Row;
  using Rows = Row[kLines][kWaves][2];
  using Words = uint32_t[kBlocks][kWords];
  /// What a stage has for the thread, as it lies there.
  struct Loaded {
    uint32_t words[kBlocks][kBytes ? 2 * kWords : kWords];
    struct {
      uint32_t scales[2], zeros[2];
    } rows[kLines][kWaves];
  };
  using FragmentA = uint32_t[kInstructions][4];
  using Half = uint32_t[kWords];
  // Where registers allow it, the next k block is read, and its barrier awaited, while the last block of this one is
  // multiplied: those take as long as a block's elements. Where parts end within a block, ptxas serialises then. Four
  // warpgroups have the others' elements to make meanwhile.
  static constexpr uint32_t kLoadedRegisters =
      kBlocks * (kBytes ? 2 * kWords : kWords) + kLines * kWaves * (C.weights.has_zero ? 4 : 2);
  static constexpr bool kEndsWithin = C.scales.promote && C.weights.group < kWeightBlock;
  static constexpr uint32_t kMostAhead = C.warps.consumers == 1 ? 160 : 64;  // columns, of all waves
  static constexpr bool kLoadsAhead =
      C.warps.consumers < 4 && C.tile.n * kWaves <= kMostAhead && kLoadedRegisters <= 32 && !kEndsWithin;

  const WeightParams& weights;
  uint32_t stage_a;       // shared address of stage 0, at this thread's part of the warpgroup's first block
  uint64_t descriptor_b;  // of stage 0
  uint32_t full, empty;   // barriers of stage 0
  uint32_t scales;        // shared address of stage 0's, at this thread's row 0
  uint32_t zeros;
  uint32_t first_sharer;  // cluster rank of the first CTA that shares loads with this one
  PipelineState<C.tile.stages> state;

  /// `row`: the tile's first of this warpgroup.
  CLEAVE_DEVICE WeightMainloop(const GemmParams& p, uint32_t smem, uint32_t row, uint32_t sharer)
      : weights(p.weights), first_sharer(sharer) {
    constexpr SmemPlan kPlan = smem_plan(C);
    const uint32_t thread = threadIdx.x % 128, own_row = row + thread / 32 * 16 + thread % 32 / 4;
    const uint32_t read_from = kBytes ? weight_quad_thread(thread) : thread;
    stage_a = smem + kPlan.a + row * C.tile.k / 2 + read_from * kWeightThreadBytes;
    descriptor_b = make_descriptor<C.operands.b_major, kLineB>(smem + kPlan.b, C.tile.k);
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
    if constexpr (C.scales.promote || forgets_sums(C)) {
      CLEAVE_UNROLL
      for (float& sum : sums) sum = 0;
    }
    if constexpr (kShort) {
      run_short(work, waves, issued);
    } else if constexpr (C.scales.promote) {
      run_promoted(work, waves, issued);
    } else {
      run_plain(work, waves, issued);
    }
  }

 private:
  template <class Issued>
  CLEAVE_DEVICE void run_plain(const WorkTile& work, Wave (&waves)[kWaves], Issued issued) {
    FragmentA fragments[2];
    Loaded loaded;
    if constexpr (kLoadsAhead) load(work, 0, state, loaded);
    uint32_t previous = 0;
    CLEAVE_NO_UNROLL
    for (uint32_t i = 0; i < work.k_count; ++i) {
      const auto here = state;
      state.advance();
      if constexpr (!kLoadsAhead) load(work, i, here, loaded);
      Words words;
      Rows rows;
      unpack(loaded, words, rows);
      CLEAVE_UNROLL
      for (uint32_t block = 0; block < kBlocks; ++block) {
        const uint32_t along = block / kWaves, wave = block % kWaves;
        auto& fragment = fragments[block % 2];
        make(along, wave, words, rows, fragment);
        if (kLoadsAhead && block + 1 == kBlocks) load_next(work, i, here, loaded);
        ptx::wgmma_fence();
        CLEAVE_UNROLL
        for (uint32_t step = 0; step < kSteps; ++step) {
          Instruction::mma(waves[wave], fragment[step], operand_b(here.stage, along * kSteps + step),
                           i != 0 || along + step != 0);
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
        keep(fragments[1 - block % 2]);
        if (block == 0 && i != 0) release(previous);
      }
      previous = here.stage;
    }
    issued();
    ptx::wgmma_wait<0>();
    CLEAVE_UNROLL
    for (uint32_t wave = 0; wave < kWaves; ++wave) pin(waves[wave]);
    release(previous);
  }

  template <class Issued>
  CLEAVE_DEVICE void run_promoted(const WorkTile& work, Wave (&waves)[kWaves], Issued issued) {
    FragmentA fragments[2];
    // What is multiplied; before the first, nothing times nothing.
    WavePart part = {};
    float scales[2] = {};
    Loaded loaded;
    if constexpr (kLoadsAhead) load(work, 0, state, loaded);
    uint32_t previous = 0;
    CLEAVE_NO_UNROLL
    for (uint32_t i = 0; i < work.k_count; ++i) {
      const auto here = state;
      state.advance();
      if constexpr (!kLoadsAhead) load(work, i, here, loaded);
      Words words;
      Rows rows;
      unpack(loaded, words, rows);
      CLEAVE_UNROLL
      for (uint32_t block = 0; block < kBlocks; ++block) {
        const uint32_t wave = block / kAlong, along = block % kAlong;
        auto& fragment = fragments[block % 2];
        make(along, wave, words, rows, fragment);
        if (kLoadsAhead && block + 1 == kBlocks) load_next(work, i, here, loaded);
        CLEAVE_UNROLL
        for (uint32_t step = 0; step < kSteps; ++step) {
          const uint32_t column = along * kWeightBlock + step * kStep;
          const bool begins = column % C.weights.group == 0;
          if (begins) {
            if (step != 0) ptx::wgmma_commit();
            const uint32_t wave_before = column == 0 ? (wave + kWaves - 1) % kWaves : wave;
            ptx::wgmma_wait<0>();
            pin(part);
            add(part, scales, waves[wave_before]);
            CLEAVE_UNROLL
            for (uint32_t half = 0; half < 2; ++half) scales[half] = rows[column / C.weights.group][wave][half].scale;
          }
          if (begins || step == 0) ptx::wgmma_fence();
          Instruction::mma(part, fragment[step], operand_b(here.stage, along * kSteps + step), !begins);
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
        keep(fragments[1 - block % 2]);
        if (block == 0 && i != 0) release(previous);
      }
      previous = here.stage;
    }
    issued();
    ptx::wgmma_wait<0>();
    pin(part);
    add(part, scales, waves[kWaves - 1]);
    release(previous);
  }

  template <class Issued>
  CLEAVE_DEVICE void run_short(const WorkTile& work, Wave (&waves)[kWaves], Issued issued) {
    constexpr uint32_t kParts = weight_parts(C), kGroups = kBlocks * kInstructions;  // of a k block, in all waves
    FragmentA fragments[2] = {};                                                     // zeros stay
    WavePart parts[kParts];
    CLEAVE_NO_UNROLL
    for (uint32_t i = 0; i < work.k_count; ++i) {
      const auto here = state;
      state.advance();
      Loaded loaded;
      load(work, i, here, loaded);
      Words words;
      Rows rows;
      unpack(loaded, words, rows);
      // Adds the part of a group. All are within one k block: ptxas serialises those that are read after a branch.
      const auto take = [&](uint32_t group) {
        const uint32_t wave = group / (kAlong * kInstructions), line = group % (kAlong * kInstructions);
        if (group + 1 == kGroups) {
          ptx::wgmma_wait<0>();
        } else {
          ptx::wgmma_wait<kParts - 1>();
        }
        pin(parts[group % kParts]);
        add(parts[group % kParts], {rows[line][wave][0].scale, rows[line][wave][1].scale}, waves[wave]);
      };
      CLEAVE_UNROLL
      for (uint32_t group = 0; group < kGroups; ++group) {
        const uint32_t block = group / kInstructions, wave = block / kAlong, along = block % kAlong;
        auto& fragment = fragments[block % 2];
        if (group % kInstructions == 0) make(along, wave, words, rows, fragment);
        ptx::wgmma_fence();
        Instruction::mma(parts[group % kParts], fragment[group % kInstructions],
                         operand_b(here.stage, along * kSteps + group % kInstructions / 2), false);
        ptx::wgmma_commit();
        if (group + 1 >= kParts) take(group + 1 - kParts);
        if (group % kInstructions == 0) keep(fragments[1 - block % 2]);
      }
      if (i + 1 == work.k_count) issued();
      if (kParts == 2) take(kGroups - 1);
      keep(fragments[0]), keep(fragments[1]);
      release(here.stage);
    }
  }

  /// sums += part, times the scales of the thread's rows.
  CLEAVE_DEVICE static void add(const WavePart& part, const float (&scales)[2], Wave& sums) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.tile.n / 2; ++i) sums[i] += float(part[i]) * scales[i / 2 % 2];
    pin(sums);  // added before the part is multiplied anew
  }

  /// The thread's part of k block `block` of the work tile, once it is in its stage: blocks of a wave lie behind each
  /// other along K.
  CLEAVE_DEVICE void load(const WorkTile& work, uint32_t block, PipelineState<C.tile.stages> from, Loaded& to) const {
    constexpr SmemPlan kPlan = smem_plan(C);
    ptx::mbarrier_wait(full + from.stage * 8, from.parity);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kBlocks; ++i) {
      const uint32_t at = stage_a + from.stage * kPlan.a_stage + i * kWeightBlockBytes;
      ptx::load_shared_128(at, reinterpret_cast<Half&>(to.words[i]));
      if constexpr (kBytes) ptx::load_shared_128(at + kWeightThreadBytes, reinterpret_cast<Half&>(to.words[i][kWords]));
    }
    CLEAVE_UNROLL
    for (uint32_t line = 0; line < kLines; ++line) load_line(work, block, from.stage, line, to);
  }

  /// The same of the k block after `block`, or once more of the last one: a branch would cost more.
  CLEAVE_DEVICE void load_next(const WorkTile& work, uint32_t block, PipelineState<C.tile.stages> here,
                               Loaded& to) const {
    const bool last = block + 1 == work.k_count;
    const PipelineState<C.tile.stages> next{last ? here.stage : state.stage, last ? here.parity : state.parity};
    load(work, last ? block : block + 1, next, to);
  }

  CLEAVE_DEVICE static void unpack(const Loaded& loaded, Words& words, Rows& rows) {
    const uint32_t selector = weight_quad_selector(threadIdx.x);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kBlocks * kWords; ++i) {
      const auto& own = loaded.words[i / kWords];
      const uint32_t word = i % kWords;
      if constexpr (kBytes) {
        words[i / kWords][word] = __byte_perm(own[word], own[kWords + word], selector);
      } else {
        words[i / kWords][word] = own[word];
      }
    }
    CLEAVE_UNROLL
    for (uint32_t line = 0; line < kLines; ++line) {
      CLEAVE_UNROLL
      for (uint32_t wave = 0; wave < kWaves; ++wave)
        Dequantise::rows(loaded.rows[line][wave].scales, loaded.rows[line][wave].zeros, rows[line][wave]);
    }
  }

  /// The elements of a wave's block, the `along`th of K. What is not theirs of short groups is left as it is.
  CLEAVE_DEVICE static void make(uint32_t along, uint32_t wave, const Words& all, const Rows& rows, FragmentA& to) {
    const auto& words = all[wave * kAlong + along];
    CLEAVE_UNROLL
    for (uint32_t step = 0; step < kSteps; ++step) {
      const auto& both = rows[(along * kWeightBlock + step * kStep) / C.weights.group][wave];
      CLEAVE_UNROLL
      for (uint32_t r = 0; r < 4; ++r) {
        if constexpr (kBytes) {
          to[kShort ? 2 * step + r / 2 : step][r] = Dequantise::quad(words[2 * step + r / 2], r % 2, both[r % 2]);
        } else {
          to[step][r] = Dequantise::pair(words[step], r, both[r % 2]);
        }
      }
    }
  }

  /// What the thread's rows have in a line of k block `block` of the work tile.
  CLEAVE_DEVICE void load_line(const WorkTile& work, uint32_t block, uint32_t in_stage, uint32_t line,
                               Loaded& to) const {
    constexpr SmemPlan kPlan = smem_plan(C);
    const uint32_t group = first_weight_group<C>(weights, work.k_block(block)) + line;
    const uint32_t from = work.batch * uint32_t(weights.stride_batch) + group * weights.stride_k;
    // What lies before the tile's rows in the words that were copied.
    const uint32_t skip_scale = (from * kScaleBytes + uint32_t(reinterpret_cast<uint64_t>(weights.scales))) % 4;
    const uint32_t skip_zero = (from + uint32_t(reinterpret_cast<uint64_t>(weights.zeros))) % 4;
    const uint32_t stage = in_stage * kPlan.scale_stage + line * weight_line_words(C) * 4;
    CLEAVE_UNROLL
    for (uint32_t wave = 0; wave < kWaves; ++wave) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t row = wave * kWeightBlock + i * 8, at = scales + stage + row * kScaleBytes + skip_scale;
        auto& rows = to.rows[line][wave];
        rows.scales[i] = kScaleBytes == 1 ? ptx::load_shared_8(at) : ptx::load_shared_16(at);
        rows.zeros[i] = C.weights.has_zero ? ptx::load_shared_8(zeros + stage + row + skip_zero) : 8;
      }
    }
  }

  /// B's descriptor for a stage's step `step`.
  CLEAVE_DEVICE uint64_t operand_b(uint32_t stage, uint32_t step) const {
    constexpr SmemPlan kPlan = smem_plan(C);
    const uint32_t low = uint32_t(descriptor_b) + stage * (kPlan.b_stage / 16);  // no carry: addresses have 14 bits
    const uint64_t b = descriptor_b >> 32 << 32 | low;
    return b + k_step_bytes<C.operands.b_major, kLineB>(step, C.tile.n, C.operands.b) / 16;
  }

  /// Nothing else is in these registers until here.
  CLEAVE_DEVICE static void keep(FragmentA& fragment) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kInstructions * 4; ++i) ptx::wgmma_pin(fragment[i / 4][i % 4]);
  }

  /// Accumulators may be read from here on.
  template <class T>
  CLEAVE_DEVICE static void pin(T (&accumulators)[C.tile.n / 2]) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.tile.n / 2; ++i) ptx::wgmma_pin(accumulators[i]);
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

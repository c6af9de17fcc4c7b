// Loads the scales of k blocks into their stages, asynchronously, four bytes at a time: any
// strides.
#pragma once

#include "cleave/config/gemm_params.h"
#include "cleave/config/loads.h"
#include "cleave/config/output.h"
#include "cleave/config/scale_lines.h"
#include "cleave/ptx/copy_async.h"
#include "cleave/schedule/schedule.h"
#include "cleave/tile/tile.h"

namespace cleave {

/// One of `Threads` threads that load them together. Its addresses are worked out once a work tile, and
/// then only advance from k block to k block.
template <GemmConfig C, uint32_t Threads>
class ScaleLoader {
 public:
  CLEAVE_DEVICE ScaleLoader(const GemmParams& p, uint32_t thread) : p_(p), thread_(thread) {}

  /// Lines outside the operands get the last one's scale; nothing of theirs is stored. Groups of K
  /// begin with a block of scales. A work tile past its group's end (CtaScheduler) gets scales of 0: what lies
  /// there is another group's, and may be infinite.
  CLEAVE_DEVICE void start(const WorkTile& work, const Tile<C>& tile) {
    uint32_t block = work.k_first;
    if constexpr (C.schedule.grouping == Grouping::k) {
      const uint32_t last = ceil_div(p_.groups.extent, kScaleBlock) - 1;
      bytes_ = block * kScaleBlock < work.range.size() ? 4 : 0;
      block = min_of(work.range.begin / kScaleBlock + block, last);
    }
    a_.start(p_.scales_a, p_.list, work, block, C.scales.rows_a, tile.m0, tile.m_end(p_.size), thread_);
    b_.start(p_.scales_b, p_.list, work, block, C.scales.rows_b, tile.n0, tile.n_end(p_.size), thread_, p_.gates);
  }

  /// The work tile's next k block, into the stage at `stage`.
  CLEAVE_DEVICE void load(uint32_t stage) {
    const uint32_t bytes = C.schedule.grouping == Grouping::k ? bytes_ : 4;
    a_.template load<true>(stage, bytes, thread_);
    b_.load(stage + scale_lines_b_at(C) * 4, bytes, thread_);
  }

 private:
  /// `Pieces`: of the lines, the gates' and the ups'.
  template <uint32_t Lines, bool Listed, uint32_t Pieces = 1>
  struct Operand {
    static constexpr uint32_t kOwn = ceil_div(Lines, Threads);
    const float* from[kOwn];
    int64_t step;

    CLEAVE_DEVICE void start(const ScaleParams& scales, const ListParams& list, const WorkTile& work, uint32_t block,
                             uint32_t rows, uint32_t first, uint32_t end, uint32_t thread, GateColumns gates = {}) {
      const float* const base =
          scales.data + int64_t(work.batch) * scales.stride_batch + int64_t(block) * scales.stride_k;
      step = int64_t(work.k_step) * scales.stride_k;
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kOwn; ++i) {
        constexpr uint32_t kOfPiece = Lines / Pieces;
        const uint32_t own = i * Threads + thread;
        uint32_t line = min_of(first / rows + (Pieces == 1 ? own : own % kOfPiece), (end - 1) / rows);
        if constexpr (Pieces == 2) line = line * gates.step + own / kOfPiece * (gates.up / rows);
        from[i] = base + int64_t(scale_row<Listed>(list, line)) * scales.stride_row;
      }
    }

    /// `Rows`: the lines are A's.
    template <bool Rows = false>
    CLEAVE_DEVICE void load(uint32_t to, uint32_t bytes, uint32_t thread) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < kOwn; ++i) {
        const uint32_t line = i * Threads + thread, place = Rows ? scale_place_a(C, line) : line;
        if (Lines % Threads == 0 || line < Lines) ptx::copy_async<4>(to + place * 4, from[i], bytes);
        from[i] += step;
      }
    }
  };

  const GemmParams& p_;
  uint32_t thread_;
  uint32_t bytes_ = 4;  // of a scale that are read; the rest are zeros
  Operand<scale_lines_a(C), lists_a(C)> a_;
  Operand<scale_lines_b(C), lists_b(C), gated(C) ? 2 : 1> b_;
};

/// As ScaleLoader, for what ScaleLineLoader cannot load. It finds each address anew: a warpgroup that as a rule has
/// nothing but lanes that load has given up the registers to hold them.
template <GemmConfig C, uint32_t Threads>
class LeanScaleLoader {
 public:
  CLEAVE_DEVICE LeanScaleLoader(const GemmParams& p, uint32_t thread) : p_(p), thread_(thread) {}

  CLEAVE_DEVICE void start(const WorkTile& work, const Tile<C>& tile) {
    static_assert(C.schedule.grouping == Grouping::k && C.schedule.split == SplitKMode::none);
    const uint32_t last = ceil_div(p_.groups.extent, kScaleBlock) - 1;
    bytes_ = work.range.size() > 0 ? 4 : 0;
    block_ = min_of(work.range.begin / kScaleBlock, last);
    m0_ = tile.m0, n0_ = tile.n0;
  }

  CLEAVE_DEVICE void load(uint32_t stage) {
    load<scale_lines_a(C)>(p_.scales_a, stage, m0_, p_.size.m);
    load<scale_lines_b(C)>(p_.scales_b, stage + scale_lines_b_at(C) * 4, n0_, p_.size.n);
    ++block_;
  }

 private:
  template <uint32_t Lines>
  CLEAVE_DEVICE void load(const ScaleParams& scales, uint32_t to, uint32_t first, uint32_t end) const {
    CLEAVE_NO_UNROLL
    for (uint32_t line = thread_; line < Lines; line += Threads) {
      const int64_t from = block_ * scales.stride_k + min_of(first + line, end - 1) * scales.stride_row;
      ptx::copy_async<4>(to + line * 4, scales.data + from, bytes_);
    }
  }

  const GemmParams& p_;
  uint32_t thread_, m0_ = 0, n0_ = 0, block_ = 0, bytes_ = 4;
};

}  // namespace cleave

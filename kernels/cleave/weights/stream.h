// The streamed kernel's mainloop: a warp multiplies rows of a packed weight, made in its registers, by the columns that
// are resident, at every warps.k-th k block. Its sums are parts of a tile, which warps take turns to add up.
//
// Reads run kAhead k blocks ahead in a ring of registers, whatever tile those belong to. That is what keeps the memory
// busy while parts are handed over.
#pragma once

#include "cleave/config/threads.h"
#include "cleave/ptx/sync.h"
#include "cleave/weights/line_sum.h"
#include "cleave/weights/reader.h"
#include "cleave/weights/resident_columns.h"
#include "cleave/weights/warp_parts.h"

namespace cleave {

template <GemmConfig C>
class WeightStream {
  using Rows = WeightRows<C>;
  // What sums and addresses leave, as the compiler said; before Hopper addresses take more.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
  static constexpr uint32_t kRingRegisters = 24;
#else
  static constexpr uint32_t kRingRegisters = kPieces<C> == 1 ? 40 : 30;
#endif
  static constexpr uint32_t kAhead = max_of(kRingRegisters / Rows::kRegisters, 2u);

 public:
  CLEAVE_DEVICE WeightStream(const GemmParams& p, const CtaCoord<C>& cta, uint32_t smem)
      : p_(p),
        cta_(cta),
        warp_{threadIdx.x / 32 % C.warps.m * Fragment<C>::kRows, threadIdx.x / 32 / C.warps.m},
        reader_(p, cta, warp_),
        columns_(p, smem),
        parts_(smem),
        scheduler_(cta.scheduler(p)) {
    work_.k_count = 0;
  }

  /// All of the CTA's work tiles. The first reads of a static weight do not wait for the launch ahead.
  /// `finish(work, idle, sums)` is called in warps.m warps, with a tile's sums; `idle`: it is the CTA's last.
  template <class Finish>
  CLEAVE_DEVICE void run(const Finish& finish) {
    Rows ahead[kAhead];
    fill<0>(ahead);
    if constexpr (C.operands.static_a) ptx::grid_dependency_wait();
    while (go_round<0>(ahead, finish)) {
    }
  }

 private:
  // Registers have no indices: the ring is walked over at compile time, which a loop in a loop is not always.
  template <uint32_t I>
  CLEAVE_DEVICE void fill(Rows (&ahead)[kAhead]) {
    reader_.read(ahead[I]);
    if constexpr (I + 1 < kAhead) fill<I + 1>(ahead);
  }

  /// Once round the ring; false if that was the last time.
  template <uint32_t I, class Finish>
  CLEAVE_DEVICE bool go_round(Rows (&ahead)[kAhead], const Finish& finish) {
    if (!seek(finish)) return false;
    multiply(ahead[I]);
    at_ += C.warps.k;
    if (!reader_.read(ahead[I]) && warp_.k == C.warps.k - 1) ptx::launch_dependents();
    if constexpr (I + 1 < kAhead) {
      return go_round<I + 1>(ahead, finish);
    } else {
      return true;
    }
  }

  /// Goes on to the k block that is next in the ring; false after the last tile.
  template <class Finish>
  CLEAVE_DEVICE bool seek(const Finish& finish) {
    while (at_ >= end_) {
      if (end_ == work_.k_count) {
        if (work_.k_count > 0) hand_over(finish);
        if (!scheduler_.next(work_)) return false;
        const uint32_t n0 = cta_.first_column(work_);
        columns_.start(work_, n0, C.schedule.grouping == Grouping::n ? work_.range.end : p_.size.n);
        at_ = warp_.k;
        end_ = 0;
      }
      first_ = end_;
      end_ = min_of(first_ + columns_.chunk(), work_.k_count);
      columns_.load(work_, first_, end_ - first_);
    }
    return true;
  }

  template <class Finish>
  CLEAVE_DEVICE void hand_over(const Finish& finish) {
    parts_.give(sums_);
    if (warp_.k == turn_) {
      parts_.take(sums_);
      finish(work_, scheduler_.finished(), reinterpret_cast<Sums<C>&>(sums_));
    }
    parts_.advance();
    // Slices meet by a barrier and a word that only the same warps may use.
    if constexpr (C.schedule.split == SplitKMode::none) turn_ = turn_ + 1 == C.warps.k ? 0 : turn_ + 1;
    CLEAVE_UNROLL
    for (float& sum : reinterpret_cast<Sums<C>&>(sums_)) sum = 0;
  }

  CLEAVE_DEVICE void multiply(const Rows& from) {
    constexpr uint32_t kSteps = C.tile.k / 16, kStepsOfLine = kSteps / Rows::kLines;
    uint32_t b[2][kPieces<C>][2];  // of two steps
    CLEAVE_UNROLL
    for (uint32_t line = 0; line < Rows::kLines; ++line) {
      LineSum<C> sum(from.lines[line]);
      CLEAVE_UNROLL
      for (uint32_t step = line * kStepsOfLine; step < (line + 1) * kStepsOfLine; ++step) {
        if (step % 2 == 0) {
          CLEAVE_UNROLL
          for (uint32_t piece = 0; piece < kPieces<C>; ++piece) {
            uint32_t both[4];
            columns_.fragment(at_ - first_, piece, step / 2, both);
            CLEAVE_UNROLL
            for (uint32_t i = 0; i < 4; ++i) b[i / 2][piece][i % 2] = both[i];
          }
        }
        uint32_t words[kStrips<C>];
        CLEAVE_UNROLL
        for (uint32_t strip = 0; strip < kStrips<C>; ++strip) words[strip] = from.words[strip][step / 4][step % 4];
        sum.add(words, b[step % 2], sums_);
      }
      sum.finish(sums_);
    }
  }

  const GemmParams& p_;
  const CtaCoord<C>& cta_;
  const WarpSlice warp_;
  WeightReader<C> reader_;
  ResidentColumns<C> columns_;
  WarpParts<C> parts_;
  CtaScheduler<C> scheduler_;
  WorkTile work_;
  uint32_t turn_ = 0;                      // whose it is to finish a tile: a k
  uint32_t at_ = 0, first_ = 0, end_ = 0;  // in the work tile: the next k block, and those that are resident
  StripSums<C> sums_ = {};
};

}  // namespace cleave

// A warpgroup's gathered lines (direct/sweep.h): the ring of shared memory in which they come, and who has them come.
#pragma once

#include "cleave/config/direct_sweep.h"
#include "cleave/config/gemm_params.h"
#include "cleave/conv/column_share.h"
#include "cleave/memory/pipeline.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/tma.h"

namespace cleave {

/// The place of the next line, which a barrier says to be full.
template <GemmConfig C>
class SweepRing {
 public:
  CLEAVE_DEVICE SweepRing(uint32_t smem, uint32_t warpgroup)
      : lines_(smem + sweep_filter_bytes(C) + warpgroup * C.tile.stages * sweep_line_bytes(C)),
        barriers_(sweep_filters_full(C, smem, sweep_taps(C)) + warpgroup * C.tile.stages * 2 * kSweepBarrier) {}

  CLEAVE_DEVICE void init() const {
    for (uint32_t i = 0; i < C.tile.stages; ++i) {
      ptx::mbarrier_init(barriers_ + 2 * i * kSweepBarrier, 1);
      ptx::mbarrier_init(barriers_ + (2 * i + 1) * kSweepBarrier, kSweepThreads / 32);
    }
  }

  CLEAVE_DEVICE uint32_t line() const { return lines_ + state_.stage * sweep_line_bytes(C); }
  CLEAVE_DEVICE uint32_t full() const { return barriers_ + 2 * state_.stage * kSweepBarrier; }
  CLEAVE_DEVICE void wait_full() const { ptx::mbarrier_wait(full(), state_.parity); }
  CLEAVE_DEVICE void wait_empty() const { ptx::mbarrier_wait(full() + kSweepBarrier, state_.parity ^ 1); }

  /// By each warp of the warpgroup, when it reads the line no more.
  CLEAVE_DEVICE void release() const {
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(full() + kSweepBarrier);
  }

  CLEAVE_DEVICE void advance() { state_.advance(); }

 private:
  uint32_t lines_, barriers_;
  PipelineState<C.tile.stages> state_;
};

/// One thread's: has TMA bring the lines of a share, of all its columns, in the order in which they are multiplied.
template <GemmConfig C>
class SweepLines {
 public:
  CLEAVE_DEVICE SweepLines(const Params<C>& p, uint32_t first, uint32_t warpgroup, uint32_t smem)
      : p_(p), share_(p.shape, first + warpgroup), ring_(smem, warpgroup) {}

  /// The next line, when the place of the ring that it goes to is free. False if there is none.
  CLEAVE_DEVICE bool send() {
    if (!find()) return false;
    ring_.wait_empty();
    load();
    ring_.advance();
    if (++d_ < C.direct.depth.taps) return true;
    d_ = 0;
    ++y_;
    --left_;
    return true;
  }

 private:
  /// Whether there are more lines.
  CLEAVE_DEVICE bool find() {
    if (left_ > 0) return true;
    if (!share_.has_more()) return false;
    uint32_t number = 0, first = 0, made = 0;
    share_.take(p_.shape, number, first, made);
    column_ = sweep_column(p_.shape, number);
    y_ = int32_t(first) - p_.shape.pad[0];
    left_ = made + C.direct.height.taps - 1;
    return true;
  }

  CLEAVE_DEVICE void load() const {
    int32_t plane = int32_t(column_.plane), y = y_;
    if constexpr (C.direct.depth.taps > 1) {
      const int32_t z = int32_t(column_.z + d_) - p_.shape.pad_depth;
      plane = int32_t(column_.image * p_.shape.met_depth) + z;
      if (!is_inside(z, p_.shape.met_depth)) y = -1;  // zeros, not another image's
    }
    const int32_t x = int32_t(column_.x0) - p_.shape.pad[1];
    constexpr uint32_t kChannels = sweep_width(C) / size_of(C.operands.a);
    ptx::mbarrier_arrive_expect(ring_.full(),
                                sweep_parts(C) * p_.shape.together * sweep_length(C, p_.shape) * sweep_width(C));
    CLEAVE_UNROLL
    for (uint32_t part = 0; part < sweep_parts(C); ++part)
      ptx::tma_load(ring_.line() + part * sweep_part_bytes(C), &p_.map_a, ring_.full(), int32_t(part * kChannels), x, y,
                    plane, ptx::CacheHint::normal);
  }

  const Params<C>& p_;
  ColumnShare share_;
  SweepRing<C> ring_;
  SweepColumn column_ = {};
  uint32_t left_ = 0, d_ = 0;  // gathered lines of the column, the next tap down the depth
  int32_t y_ = 0;
};

}  // namespace cleave

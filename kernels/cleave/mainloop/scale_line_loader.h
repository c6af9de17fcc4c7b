// Loads the scales of k blocks where those of a tile's rows lie side by side, and those of its columns: a bulk copy of
// each, by one lane. scale_loader.h has others.
#pragma once

#include "cleave/config/gemm_params.h"
#include "cleave/config/loads.h"
#include "cleave/config/scale_lines.h"
#include "cleave/config/smem_plan.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/shared.h"
#include "cleave/ptx/tma.h"
#include "cleave/schedule/schedule.h"

namespace cleave {

/// Whether all lines of scales, of A's rows and of B's columns, begin at multiples of 16 bytes, and end there.
CLEAVE_DEVICE bool has_whole_scale_lines(const GemmParams& p) {
  const ScaleParams &a = p.scales_a, &b = p.scales_b;
  const uint64_t rows = uint64_t(a.stride_k) | uint64_t(b.stride_k) | p.size.m | p.size.n;
  const uint64_t bits = reinterpret_cast<uint64_t>(a.data) | reinterpret_cast<uint64_t>(b.data) | rows * sizeof(float);
  return a.stride_row == 1 && b.stride_row == 1 && bits % 16 == 0;
}

template <GemmConfig C>
class ScaleLineLoader {
 public:
  static constexpr uint32_t kAt = smem_plan(C).scales, kStage = smem_plan(C).scale_stage;

  CLEAVE_DEVICE explicit ScaleLineLoader(const GemmParams& p) : p_(p) {}

  /// `row0`, `column0`: where the tile begins in D. A partner's tile may lie past the last row or column, and reads the
  /// first ones' scales then: nothing of its own is stored. Groups of K begin with a block of scales.
  CLEAVE_DEVICE void start(const WorkTile& work, uint32_t row0, uint32_t column0) {
    static_assert(C.schedule.grouping == Grouping::k, "tiles begin where 16 bytes do, and no batch has scales apart");
    const uint32_t m0 = row0 < p_.size.m ? row0 : 0, n0 = column0 < p_.size.n ? column0 : 0;
    a_ = p_.scales_a.data + work.range.begin / kScaleBlock * p_.scales_a.stride_k + m0;
    b_ = p_.scales_b.data + work.range.begin / kScaleBlock * p_.scales_b.stride_k + n0;
    bytes_a_ = min_of(p_.size.m - m0, C.tile.m) * uint32_t(sizeof(float));
    bytes_b_ = min_of(p_.size.n - n0, C.tile.n) * uint32_t(sizeof(float));
    blocks_ = ceil_div(work.range.size(), kScaleBlock);
  }

  /// Those of K block `block`, into the stage at `stage`. A work tile past its group's end (CtaScheduler) gets zeros:
  /// what lies there is another group's, and may be infinite. Lines that D lacks keep what was there.
  CLEAVE_DEVICE void load(uint32_t block, uint32_t stage, uint32_t barrier) const {
    if (block >= blocks_) return clear(stage, barrier);
    ptx::mbarrier_arrive_expect(barrier, bytes_a_ + bytes_b_);
    ptx::bulk_load(stage, a_ + block * p_.scales_a.stride_k, bytes_a_, barrier, ptx::CacheHint::normal);
    ptx::bulk_load(stage + scale_lines_b_at(C) * 4, b_ + block * p_.scales_b.stride_k, bytes_b_, barrier,
                   ptx::CacheHint::normal);
  }

 private:
  CLEAVE_DEVICE static void clear(uint32_t stage, uint32_t barrier) {
    constexpr uint32_t kZeros[4] = {};
    CLEAVE_NO_UNROLL
    for (uint32_t byte = 0; byte < kStage; byte += 16) ptx::store_shared_128(stage + byte, kZeros);
    ptx::fence_async_shared();  // the next lap's copies come behind this
    ptx::mbarrier_arrive(barrier);
  }

  const GemmParams& p_;
  const float *a_ = nullptr, *b_ = nullptr;  // of the tile's first row and column, in its group's first block
  uint32_t bytes_a_ = 0, bytes_b_ = 0, blocks_ = 0;
};

}  // namespace cleave

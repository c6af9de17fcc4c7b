// Block scales of A's rows that lie side by side, in bulk: the lane that asks TMA for a k block copies them, too, with
// one instruction and onto the same bytes of the stage's barrier.
// A copy may begin with up to three scales of rows before, which promotion.h skips.
#pragma once

#include "cleave/config/bulk_copy.h"
#include "cleave/config/gemm_params.h"
#include "cleave/ptx/tma.h"
#include "cleave/schedule/schedule.h"

namespace cleave {

template <GemmConfig C>
class BulkScales {
 public:
  /// `row`: the tile's first; `end`: past the last one that there is. A tile may have none, beside another that shares
  /// its loads: then any scale will do.
  CLEAVE_DEVICE void start(const ScaleParams& scales, const WorkTile& work, uint32_t row, uint32_t end) {
    row = min_of(row, end - 1);
    const int64_t first = work.batch * scales.stride_batch + work.k_first * scales.stride_k + row;
    from_ = reinterpret_cast<uint64_t>(scales.data + first);
    step_ = work.k_step * scales.stride_k * int64_t(sizeof(float));
    bytes_ = min_of(end - row, C.tile.m) * uint32_t(sizeof(float));
  }

  /// That `load` copies of the work tile's k block `i`.
  CLEAVE_DEVICE uint32_t bytes(uint32_t i) const { return copy(i).bytes; }

  CLEAVE_DEVICE void load(uint32_t i, uint32_t stage, uint32_t barrier) const {
    const BulkCopy scales = copy(i);
    ptx::bulk_load(stage, reinterpret_cast<const void*>(scales.from), scales.bytes, barrier, ptx::CacheHint::normal);
  }

 private:
  CLEAVE_DEVICE BulkCopy copy(uint32_t i) const { return bulk_copy(from_ + i * step_, bytes_); }

  uint64_t from_;
  int64_t step_;
  uint32_t bytes_;
};

}  // namespace cleave

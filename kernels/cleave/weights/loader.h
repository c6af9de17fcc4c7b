// Loads a packed weight's blocks, k block by k block, by bulk copies: the blocks of 64 rows lie behind each other along
// K, in memory as in a stage. And its scales, and zero points, where their lines allow that (scale_loader.h has
// others).
#pragma once

#include "cleave/config/gemm_params.h"
#include "cleave/config/smem_plan.h"
#include "cleave/memory/weight_layout.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/tma.h"
#include "cleave/schedule/schedule.h"

namespace cleave {

template <GemmConfig C>
class WeightLoader {
  static constexpr uint32_t kDown = C.tile.m / kWeightBlock, kAlong = C.tile.k / kWeightBlock;

 public:
  static constexpr uint32_t kAt = smem_plan(C).a, kStage = smem_plan(C).a_stage;

  CLEAVE_DEVICE explicit WeightLoader(const GemmParams& p) : p_(p), along_(weight_blocks(p.size.k)) {}

  /// `row0`: the tile's first row, of D. Rows past the last are the last ones again: nothing of theirs is stored.
  CLEAVE_DEVICE void start(const WorkTile& work, uint32_t row0, uint32_t) {
    const uint32_t down = weight_blocks(weight_rows<C>(p_.size.m)), first = work.batch * p_.batched_a * down;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kDown; ++i) {
      const uint32_t row = first + min_of(weight_rows<C>(row0) / kWeightBlock + i, down - 1);
      from_[i] = static_cast<const char*>(p_.a.data) + uint64_t(row) * along_ * kWeightBlockBytes;
    }
  }

  /// K block `block`, into the stage at `stage`. What the last one has no columns for keeps what was there: B has zeros
  /// beside it, and no code is infinite.
  CLEAVE_DEVICE void load(uint32_t block, uint32_t stage, uint32_t barrier) const {
    const uint32_t first = block * kAlong, bytes = min_of(kAlong, along_ - first) * kWeightBlockBytes;
    ptx::mbarrier_arrive_expect(barrier, kDown * bytes);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kDown; ++i) {
      ptx::bulk_load(stage + i * kAlong * kWeightBlockBytes, from_[i] + uint64_t(first) * kWeightBlockBytes, bytes,
                     barrier, hint());
    }
  }

 private:
  /// What one tile alone reads is the first to leave L2 (tma_loader.h).
  CLEAVE_DEVICE ptx::CacheHint hint() const {
    const bool once = C.schedule.grouping == Grouping::none && p_.size.n <= C.tile.n;
    return once ? ptx::CacheHint::evict_first : ptx::CacheHint::normal;
  }

  const GemmParams& p_;
  const uint32_t along_;
  const char* from_[kDown];
};

/// Whether all lines of scales, and of zero points, begin at multiples of 16 bytes, and end there.
template <GemmConfig C>
CLEAVE_DEVICE bool has_whole_lines(const GemmParams& p) {
  const uint64_t rows = uint64_t(p.weights.stride_k) | uint64_t(p.weights.stride_batch) | weight_rows<C>(p.size.m);
  uint64_t bits = reinterpret_cast<uint64_t>(p.weights.scales) | rows * weight_scale_bytes(C);
  if constexpr (C.weights.has_zero) bits |= reinterpret_cast<uint64_t>(p.weights.zeros) | rows;
  return bits % 16 == 0;
}

template <GemmConfig C>
class WeightLineLoader {
 public:
  static constexpr uint32_t kAt = smem_plan(C).scales, kStage = smem_plan(C).scale_stage;

  CLEAVE_DEVICE explicit WeightLineLoader(const GemmParams& p) : p_(p) {}

  /// `row0`: the tile's first row, of D. A partner's tile may lie past the last, and reads the first ones then: nothing
  /// of its own is stored.
  CLEAVE_DEVICE void start(const WorkTile& work, uint32_t row0, uint32_t) {
    const uint32_t m0 = row0 < p_.size.m ? weight_rows<C>(row0) : 0;
    const int64_t first = int64_t(work.batch) * p_.weights.stride_batch + m0;
    scales_ = static_cast<const char*>(p_.weights.scales) + first * weight_scale_bytes(C);
    zeros_ = p_.weights.zeros + first;
    rows_ = min_of(weight_rows<C>(p_.size.m) - m0, C.tile.m);
  }

  /// Those of K block `block`, into the stage at `stage`. Lines past the last group are that one's: numbers, where B is
  /// zero.
  CLEAVE_DEVICE void load(uint32_t block, uint32_t stage, uint32_t barrier) const {
    constexpr uint32_t kSize = weight_scale_bytes(C), kBytes = kSize + C.weights.has_zero;
    ptx::mbarrier_arrive_expect(barrier, weight_lines(C) * rows_ * kBytes);
    const uint32_t first = first_weight_group<C>(p_.weights, block);
    CLEAVE_UNROLL
    for (uint32_t line = 0; line < weight_lines(C); ++line) {
      const uint64_t from = uint64_t(min_of(first + line, p_.weights.groups - 1)) * uint32_t(p_.weights.stride_k);
      const uint32_t to = stage + line * weight_line_words(C) * 4;
      ptx::bulk_load(to, scales_ + from * kSize, rows_ * kSize, barrier, ptx::CacheHint::normal);
      if constexpr (C.weights.has_zero)
        ptx::bulk_load(to + weight_scale_words(C) * 4, zeros_ + from, rows_, barrier, ptx::CacheHint::normal);
    }
  }

 private:
  const GemmParams& p_;
  const char* scales_ = nullptr;  // of the tile's first row
  const uint8_t* zeros_ = nullptr;
  uint32_t rows_ = 0;
};

}  // namespace cleave

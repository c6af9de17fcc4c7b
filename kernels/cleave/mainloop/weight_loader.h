// Loads a packed weight's blocks, k block by k block, by bulk copies: the blocks of 64 rows lie behind each other along
// K, in memory as in a stage.
#pragma once

#include "cleave/config/gemm_params.h"
#include "cleave/memory/weight_layout.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/tma.h"
#include "cleave/schedule/schedule.h"

namespace cleave {

template <GemmConfig C>
class WeightLoader {
  static constexpr uint32_t kDown = C.tile.m / kWeightBlock, kAlong = C.tile.k / kWeightBlock;

 public:
  CLEAVE_DEVICE explicit WeightLoader(const GemmParams& p) : p_(p), along_(weight_blocks(p.size.k)) {}

  /// `row0`: the tile's first row. Rows past the last are the last ones again: nothing of theirs is stored.
  CLEAVE_DEVICE void start(const WorkTile& work, uint32_t row0) {
    const uint32_t down = weight_blocks(p_.size.m), first = work.batch * p_.batched_a * down;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kDown; ++i) {
      const uint32_t row = first + min_of(row0 / kWeightBlock + i, down - 1);
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

}  // namespace cleave

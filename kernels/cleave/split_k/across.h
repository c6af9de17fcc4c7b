// The split of K that does not stop at a GPU: ranks have a part of it each, and a tile of every rank's is added up
// before its epilogue (peers/strip.h). A warpgroup has one strip.
//
// Its CTAs wait for those of other GPUs, which may have to wait for room there: for a collective of NCCL's, say, that
// itself waits for its kernel here. So there are fewer of them than SMs, and as behind every meeting (peers/meeting.h)
// the next launch does not come before: then others' CTAs, which go on without each other, find room in turn.
#pragma once

#include "cleave/config/gemm_params.h"
#include "cleave/peers/strip.h"
#include "cleave/ptx/sync.h"
#include "cleave/tile/named_barriers.h"
#include "cleave/tile/tile.h"

namespace cleave {

template <GemmConfig C>
struct SumAcross {
  CLEAVE_DEVICE SumAcross(const Params<C>&, const Tile<C>&) {}
  CLEAVE_DEVICE void run(const Params<C>&, Sums<C>&) const {}
};

/// Made before the mainloop, so that what it asks of memory is there.
template <GemmConfig C>
  requires(C.across.ranks > 1)
struct SumAcross<C> {
  using Part = Strip<C.across.ranks, C.across.partial, C.across.vectors>;
  static_assert(Fragment<C>::kRows == kStripColumns && Part::kSums <= accumulators_per_thread(C));
  static_assert(C.schedule.split == SplitKMode::none && C.schedule.grouping == Grouping::none && !C.warps.pingpong);

  Part strip;

  /// D has whole tiles' columns.
  CLEAVE_DEVICE SumAcross(const Params<C>& p, const Tile<C>& tile)
      : strip(p.meeting, tile.m0 / kStripColumns + threadIdx.x / 128, threadIdx.x % 128) {}

  CLEAVE_DEVICE void run(const Params<C>& p, Sums<C>& sums) const {
    strip.add_up(p.size.n, sums);
    if (threadIdx.x == 0) ptx::launch_dependents();
    ptx::named_barrier_sync(warpgroup_barrier(threadIdx.x / 128), 128);
    if (threadIdx.x % 128 == 0) strip.count();
  }
};

}  // namespace cleave

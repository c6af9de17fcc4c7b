// The named barriers of a CTA: who meets at which.
#pragma once

#include "cleave/config/gemm_config.h"
#include "cleave/config/threads.h"
#include "cleave/ptx/barrier.h"

namespace cleave {

/// All of the CTA's threads', as __syncthreads().
inline constexpr uint32_t kMeeting = 0;

/// A consumer warpgroup's own: 1 to 4.
CLEAVE_DEVICE uint32_t warpgroup_barrier(uint32_t warpgroup) {
  return 1 + warpgroup;
}

/// Two warpgroups multiply in turn, and there is no fourth one: waits for the turn of warpgroup 0 or 1.
CLEAVE_DEVICE void take_turn(uint32_t warpgroup) {
  ptx::named_barrier_sync(4 + warpgroup, 256);
}

/// Says that it is the other one's.
CLEAVE_DEVICE void pass_turn(uint32_t warpgroup) {
  ptx::named_barrier_arrive(4 + (warpgroup ^ 1), 256);
}

/// All math threads'.
inline constexpr uint32_t kMathBarrier = 6;

/// streamed: all of the CTA's threads', which meet before columns of B take the place of those that are resident, and
/// once they have.
inline constexpr uint32_t kMultiplyBarrier = 7;

template <GemmConfig C>
CLEAVE_DEVICE void math_sync() {
  ptx::named_barrier_sync(kMathBarrier, math_threads(C));
}

}  // namespace cleave

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

/// Ping-pong, which has no fourth warpgroup: that of warpgroup 0 or 1, which says that it is its turn to multiply.
CLEAVE_DEVICE uint32_t turn_barrier(uint32_t warpgroup) {
  return 4 + warpgroup;
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

// The farthest reach among threads; all of them get it.
#pragma once

#include "cleave/core/max_over_lanes.h"
#include "cleave/core/quantizer.h"

namespace cleave {

template <uint32_t Lanes>
CLEAVE_DEVICE Reach reduce_lanes(bool symmetric, const Reach& reach) {
  return {max_over_lanes<Lanes>(reach.above), symmetric ? 0 : max_over_lanes<Lanes>(reach.below)};
}

/// Among the CTA's threads, whole warps of them. Once per kernel: the shared memory is not freed.
CLEAVE_DEVICE Reach reduce_cta(bool symmetric, Reach reach) {
  __shared__ int32_t above[32], below[32];
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  reach = reduce_lanes<32>(symmetric, reach);
  if (lane == 0) {
    above[warp] = reach.above;
    below[warp] = reach.below;
  }
  __syncthreads();
  const bool used = lane < blockDim.x / 32;
  return reduce_lanes<32>(symmetric, {used ? above[lane] : 0, used ? below[lane] : 0});
}

}  // namespace cleave

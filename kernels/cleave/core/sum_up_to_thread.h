// Prefix sums over the lanes of a warp, and the threads of a CTA.
#pragma once

#include "cleave/core/macros.h"

namespace cleave {

/// The sum of `value` over all lanes before this one, and itself.
CLEAVE_DEVICE uint32_t sum_up_to_lane(uint32_t value) {
  const uint32_t lane = threadIdx.x % 32;
  CLEAVE_UNROLL
  for (uint32_t distance = 1; distance < 32; distance *= 2) {
    const uint32_t before = __shfl_up_sync(0xffffffffu, value, distance);
    if (lane >= distance) value += before;
  }
  return value;
}

/// The sum of `value` over all threads before this one, and itself. The CTA is whole warps.
/// `of_warps`: shared memory that nobody else uses meanwhile.
CLEAVE_DEVICE uint32_t sum_up_to_thread(uint32_t value, uint32_t (&of_warps)[32]) {
  const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t sum = sum_up_to_lane(value);
  if (lane == 31) of_warps[warp] = sum;
  __syncthreads();
  if (warp == 0) of_warps[lane] = sum_up_to_lane(lane < blockDim.x / 32 ? of_warps[lane] : 0);
  __syncthreads();
  return warp == 0 ? sum : sum + of_warps[warp - 1];
}

}  // namespace cleave

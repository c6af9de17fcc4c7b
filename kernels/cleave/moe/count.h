// Counts every expert's slots, and where its rows end: a histogram and its prefix sums.
//
// Roles      a CTA counts a chunk of the slots; the last to arrive adds up the chunks
// Timeline   count in shared memory; where there are several chunks, store the counts, and the last
//            CTA collects them and resets the counter; prefix sums
#pragma once

#include "cleave/core/sum_up_to_thread.h"
#include "cleave/moe/add_chunks.h"
#include "cleave/moe/moe_config.h"
#include "cleave/moe/moe_params.h"
#include "cleave/ptx/sync.h"

namespace cleave {

/// True in the CTA that gets here last; there, all that the others wrote before is visible.
CLEAVE_DEVICE bool arrive_last(uint32_t* arrived) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) {
    last = ptx::add_acquire_release(arrived, 1) == gridDim.x - 1;
    if (last) *arrived = 0;
  }
  __syncthreads();
  return last;
}

template <MoeConfig C>
CLEAVE_DEVICE void count(const MoeParams& p) {
  extern __shared__ uint32_t counts[];  // one per bin
  __shared__ uint32_t of_warps[32];
  const uint32_t bins = p.bins.divisor, thread = threadIdx.x;
  ptx::launch_dependents();
  const auto clear = [&] {
    for (uint32_t bin = thread; bin < bins; bin += kCountThreads) counts[bin] = 0;
    __syncthreads();
  };
  clear();
  ptx::grid_dependency_wait();

  const uint32_t begin = blockIdx.x * p.chunk, end = min_of(begin + p.chunk, p.slots);
  for_each_loaded(
      begin + thread, end, kCountThreads, [&](uint32_t slot) { return bin_of<C.wide_ids>(p, slot); },
      [&](uint32_t, uint32_t bin) { atomicAdd(&counts[bin], 1u); });
  __syncthreads();
  if (gridDim.x > 1) {
    uint32_t* const stored = p.counts + blockIdx.x * bins;
    for (uint32_t bin = thread; bin < bins; bin += kCountThreads) stored[bin] = counts[bin];
    if (!arrive_last(&p.counters->arrived)) return;
    clear();
    add_chunks(p, gridDim.x, 0, counts, nullptr);
    __syncthreads();
  }
  const uint32_t sum = sum_up_to_thread(thread < p.experts ? counts[thread] : 0, of_warps);
  if (thread < p.experts) p.offsets[thread] = int32_t(sum);
}

}  // namespace cleave

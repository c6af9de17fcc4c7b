#pragma once

#include "cleave/moe/for_each_loaded.h"
#include "cleave/moe/moe_params.h"

namespace cleave {

/// Adds the counts of the first `chunks` chunks to `sums`, in shared memory. All threads of a CTA
/// take part.
CLEAVE_DEVICE void add_chunks(const MoeParams& p, uint32_t chunks, uint32_t threads, uint32_t* sums) {
  const uint32_t bins = p.bins.divisor;
  for_each_loaded(
      threadIdx.x, chunks * bins, threads, [&](uint32_t i) { return p.counts[i]; },
      [&](uint32_t i, uint32_t count) { atomicAdd(&sums[i - p.bins.quotient(i) * bins], count); });
}

}  // namespace cleave

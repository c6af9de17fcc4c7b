#pragma once

#include "cleave/moe/for_each_loaded.h"
#include "cleave/moe/moe_params.h"

namespace cleave {

/// Adds the counts of all `chunks` chunks to `all`, and of those before chunk `own` to `before`, both in shared memory.
/// All threads of a CTA take part: in teams, with a thread for each bin.
CLEAVE_DEVICE void add_chunks(const MoeParams& p, uint32_t chunks, uint32_t own, uint32_t* all, uint32_t* before) {
  const uint32_t bins = p.bins.divisor, threads = blockDim.x;
  const uint32_t teams = min_of(max_of(p.bins.quotient(threads), 1u), chunks);
  uint32_t team, first;
  p.bins.divmod(threadIdx.x, team, first);
  if (team >= teams) return;
  for (uint32_t bin = first; bin < bins; bin += threads) {
    uint32_t sum = 0, sum_before = 0;
    for_each_loaded(
        team, chunks, teams, [&](uint32_t chunk) { return p.counts[chunk * bins + bin]; },
        [&](uint32_t chunk, uint32_t count) {
          sum += count;
          if (chunk < own) sum_before += count;
        });
    atomicAdd(&all[bin], sum);
    if (own > 0) atomicAdd(&before[bin], sum_before);
  }
}

}  // namespace cleave

// Which rows each band of squares covers where x is cut into groups, of which only the device knows
// the bounds: the first of two launches, quantize_tiles the second. Every group begins a new band.
//
// Roles      one CTA; a thread has a group, then some bands
// Timeline   bands of each group, prefix sums, where groups end; each band looks for its group
#pragma once

#include "cleave/core/sum_up_to_thread.h"
#include "cleave/ptx/sync.h"
#include "cleave/quantize/quantize_config.h"
#include "cleave/quantize/quantize_params.h"

namespace cleave {

template <QuantizeConfig C>
CLEAVE_DEVICE void find_bands(const QuantizeParams& p) {
  __shared__ GroupRange ranges[kBandThreads];
  __shared__ uint32_t bands_up_to[kBandThreads];  // of each group and all before it
  const uint32_t thread = threadIdx.x;
  ptx::launch_dependents();
  ptx::grid_dependency_wait();

  const bool exists = thread < p.group_bounds.count;
  const GroupRange range = exists ? group_range(p.group_bounds, thread) : GroupRange{};
  const uint32_t bands = ceil_div(range.size(), kScaleBlock);
  __shared__ uint32_t of_warps[32];
  const uint32_t sum = sum_up_to_thread(bands, of_warps);
  ranges[thread] = range;
  bands_up_to[thread] = sum;
  if (exists) {
    const uint32_t end = (sum - bands) * kScaleBlock + range.size();
    p.padded_ends[thread] = int32_t(min_of(end, p.padded_bands * kScaleBlock));
  }
  __syncthreads();

  const uint32_t all = bands_up_to[kBandThreads - 1];
  const uint32_t rest = ranges[p.group_bounds.count - 1].end;
  for (uint32_t band = thread; band < p.bands; band += kBandThreads) {
    if (band >= all) {
      p.band_table[band] = band_from(rest, p.rows, band - all, false);
      continue;
    }
    uint32_t group = 0;  // how many are done before this band
    CLEAVE_UNROLL
    for (uint32_t step = kBandThreads / 2; step > 0; step /= 2) {
      if (bands_up_to[group + step - 1] <= band) group += step;
    }
    const uint32_t first = group == 0 ? 0 : bands_up_to[group - 1];
    p.band_table[band] = band_from(ranges[group].begin, ranges[group].end, band - first, true);
  }
}

}  // namespace cleave

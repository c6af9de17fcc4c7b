// Building the table of groups (groups.h) in a CTA's shared memory.
#pragma once

#include "cleave/schedule/groups.h"

namespace cleave {

/// Where a CTA begins in the line of groups of M or N: `position`, `each` positions a step (TileFinder::seek).
struct FirstPosition {
  uint32_t position = 0, each = 1;
};

/// By all threads of a CTA, of which warp `builder` builds it and may read it at once, others after the CTA's next
/// barrier. `memory`: group_table_bytes(Capacity) of shared memory. `step`: of a schedule's work tile
/// along the grouped dimension, in elements.
template <uint32_t Capacity>
CLEAVE_DEVICE GroupTable build_group_table(const GroupParams& p, Grouping grouping, uint32_t step, uint8_t* memory,
                                           uint32_t builder = 0, FirstPosition at = {}) {
  const auto entries = reinterpret_cast<GroupEntry*>(memory);
  if (threadIdx.x / 32 == builder) {
    const uint32_t most = most_group_steps(grouping, p.extent, p.count, step);
    const uint32_t lane = threadIdx.x % 32;
    uint32_t total = 0, first_group = p.count;
#pragma unroll 1
    for (uint32_t first = 0; first < p.count; first += 32) {
      const uint32_t g = first + lane;
      const bool exists = g < p.count;
      const GroupRange range = exists ? group_range(p, g) : GroupRange{};
      uint32_t sum = exists ? min_of(group_steps(grouping, range, step), most) : 0;
      CLEAVE_UNROLL
      for (uint32_t distance = 1; distance < min_of(Capacity, 32u); distance *= 2) {
        if (distance >= p.count) break;  // the first loads wait for this
        const uint32_t other = __shfl_up_sync(0xffffffffu, sum, distance);
        if (lane >= distance) sum = add_steps(sum, other, most);
      }
      const uint32_t earlier = __shfl_up_sync(0xffffffffu, sum, 1);
      const uint32_t until = add_steps(total, sum, most_steps_before(grouping, most, p.count - g - 1));
      const uint32_t before = add_steps(total, lane == 0 ? 0 : earlier, most_steps_before(grouping, most, p.count - g));
      if (exists) entries[g] = {range, {before, until}};
      if (grouping != Grouping::k) {
        const uint32_t beyond = __ballot_sync(0xffffffffu, exists && until * at.each > at.position);
        if (beyond != 0) first_group = min_of(first_group, first + __ffs(beyond) - 1);
      }
      total = add_steps(total, __shfl_sync(0xffffffffu, sum, min_of(p.count - first, 32u) - 1), most);
    }
    if (lane == 0) entries[p.count] = GroupTable::entry_of_all(first_group < p.count ? first_group : 0, total);
    __syncwarp();
  }
  return {entries, p.count};
}

}  // namespace cleave

// Building the table of groups (groups.h) in a CTA's shared memory.
#pragma once

#include "cleave/schedule/groups.h"

namespace cleave {

/// By all threads of a CTA, of which warp `builder` builds it; others may read the table after the CTA's next barrier.
/// `memory`: group_table_bytes(Capacity) of shared memory, 8-byte aligned. `step`: of a schedule's work tile along the
/// grouped dimension, in elements.
template <uint32_t Capacity>
CLEAVE_DEVICE GroupTable build_group_table(const GroupParams& p, Grouping grouping, uint32_t step, uint8_t* memory,
                                           uint32_t builder = 0) {
  const auto ranges = reinterpret_cast<GroupRange*>(memory);
  const auto before = reinterpret_cast<uint32_t*>(memory + Capacity * sizeof(GroupRange));
  if (threadIdx.x / 32 == builder) {
    const uint32_t most = most_group_steps(grouping, p.extent, p.count, step);
    const uint32_t lane = threadIdx.x % 32;
    uint32_t total = 0;
#pragma unroll 2
    for (uint32_t first = 0; first < p.count; first += 32) {
      const uint32_t g = first + lane;
      const bool exists = g < p.count;
      const GroupRange range = exists ? group_range(p, g) : GroupRange{};
      uint32_t sum = exists ? min_of(group_steps(grouping, range, step), most) : 0;
      CLEAVE_UNROLL
      for (uint32_t distance = 1; distance < 32; distance *= 2) {
        const uint32_t other = __shfl_up_sync(0xffffffffu, sum, distance);
        if (lane >= distance) sum = add_steps(sum, other, most);
      }
      if (exists) {
        ranges[g] = range;
        before[g + 1] = add_steps(total, sum, most_steps_before(grouping, most, p.count - g - 1));
      }
      total = add_steps(total, __shfl_sync(0xffffffffu, sum, 31), most);
    }
    if (lane == 0) before[0] = 0;
  }
  return {ranges, before, p.count};
}

}  // namespace cleave

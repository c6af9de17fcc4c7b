// Joins partial results of what an epilogue function reduces D to (epilogue/reduce_tile.h), in an order that follows
// from their number.
//
// Roles      a CTA has 8 to 32 lines, or a single one; its threads share the units of each
// Timeline   a thread joins every so many of a line's units; the threads of a line join theirs, as a tree
#pragma once

#include "cleave/core/reduction.h"
#include "cleave/ptx/sync.h"
#include "cleave/reduce/reduce_params.h"
#include "cleave/schedule/group_table.h"

namespace cleave {

/// Which of the 32 lines from `first` on belong to a group, as bits. By all threads.
CLEAVE_DEVICE uint32_t find_owned_lines(const GroupParams& groups, uint32_t first) {
  __shared__ uint32_t owned;
  if (threadIdx.x == 0) owned = 0;
  __syncthreads();
  for (uint32_t g = threadIdx.x; g < groups.count; g += kReduceThreads) {
    const GroupRange range = group_range(groups, g);
    const uint32_t begin = max_of(range.begin, first), end = min_of(range.end, first + kMostReducedLines);
    if (begin < end) atomicOr(&owned, (0xffffffffu >> (32 - (end - begin))) << (begin - first));
  }
  __syncthreads();
  return owned;
}

/// The units of an entry of the batch: from, and up to.
struct UnitRange {
  uint32_t first, end;
};

/// Those of the group `entry`, or of all groups from it on. By all threads.
template <ReduceConfig C>
CLEAVE_DEVICE UnitRange find_units(const ReduceParams& p, const PartialResults& x, uint32_t entry) {
  __shared__ alignas(GroupEntry) uint8_t memory[group_table_bytes(C.group_capacity)];
  const GroupTable table = build_group_table<C.group_capacity>(p.groups, Grouping::m, p.group_step, memory);
  __syncthreads();
  const GroupRange own = table.entries[entry].steps;
  return {own.begin * x.units_of_step, (x.joins_entries ? table.steps() : own.end) * x.units_of_step};
}

template <ReduceConfig C>
CLEAVE_DEVICE void reduce_partials(const ReduceParams& p) {
  __shared__ float joined_parts[kReduceThreads];
  ptx::launch_dependents();
  ptx::grid_dependency_wait();
  const PartialResults& x = p.outputs[blockIdx.y];
  const uint32_t bits = x.line_bits(), width = 1 << bits, blocks = max_of(x.line_blocks(), 1u);
  const uint32_t entry = blockIdx.x / blocks, first_line = blockIdx.x % blocks << bits;
  if (entry >= (x.joins_entries ? 1 : x.entries) || first_line >= x.lines) return;  // another output has more
  const uint32_t line = first_line + threadIdx.x % width, shares = kReduceThreads >> bits;
  UnitRange units{0, x.units};
  bool of_groups = false;
  if constexpr (C.group_capacity > 0) {
    of_groups = x.units_of_step > 0;
    if (of_groups && !x.of_elements) units = find_units<C>(p, x, entry);
  }
  const uint32_t end = x.joins_entries && (!of_groups || x.of_elements) ? x.entries : entry + 1;
  float own = 0.0f;
  if (line < x.lines) {
    for (uint32_t e = entry; e < end; ++e) {
      if constexpr (C.group_capacity > 0) {
        if (of_groups && x.of_elements) {
          const GroupRange range = group_range(p.groups, e);
          units = {range.begin * x.units_of_step, range.end * x.units_of_step};
        }
      }
      const float* const parts = x.partials + e * x.entry_stride + line;
#pragma unroll kUnitsAtOnce
      for (uint32_t unit = units.first + (threadIdx.x >> bits); unit < units.end; unit += shares)
        own = joined(x.reduction, own, reduced_part(x.reduction, parts[int64_t(unit) * x.lines]));
    }
  }
  joined_parts[threadIdx.x] = own;
  for (uint32_t distance = kReduceThreads / 2; distance >= width; distance /= 2) {
    __syncthreads();
    if (threadIdx.x < distance)
      joined_parts[threadIdx.x] = joined(x.reduction, joined_parts[threadIdx.x], joined_parts[threadIdx.x + distance]);
  }
  uint32_t owned = 0xffffffffu;
  if (C.group_capacity > 0 && !of_groups) owned = find_owned_lines(p.groups, first_line);
  if (threadIdx.x >= width || line >= x.lines) return;
  const bool exists = (owned >> threadIdx.x & 1) != 0;
  if (!exists && !p.groups.zero_rest) return;
  x.results[entry * x.result_entry_stride + line * x.result_stride] = exists ? joined_parts[threadIdx.x] : 0.0f;
}

}  // namespace cleave

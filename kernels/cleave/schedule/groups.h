// The groups of a grouped product, as a CTA sees them: where each begins and ends, and how much
// work lies before it. Read once from device memory, clamped, and kept in shared memory.
//
// A CTA's threads build the table together (group_table.h); the host builds the same one alone.
#pragma once

#include "cleave/core/enums.h"
#include "cleave/core/math.h"

namespace cleave {

/// What the host knows of the groups. The arrays are on the device, int32 or int64.
struct GroupParams {
  const void* offsets = nullptr;
  const void* sizes = nullptr;
  GroupBounds bounds = GroupBounds::ends;
  bool wide = false;
  bool zero_rest = false;
  uint32_t count = 0;
  uint32_t spacing = 1;
  uint32_t extent = 0;  // of the grouped dimension
};

/// Part of the grouped dimension.
struct GroupRange {
  uint32_t begin = 0, end = 0;

  CLEAVE_HD constexpr uint32_t size() const { return end - begin; }
};

CLEAVE_HD int64_t group_value(const GroupParams& p, const void* array, uint32_t i) {
  return p.wide ? static_cast<const int64_t*>(array)[i] : static_cast<const int32_t*>(array)[i];
}

/// Whether groups begin at multiples of the spacing.
CLEAVE_HD constexpr bool is_spaced(GroupBounds bounds) {
  return bounds == GroupBounds::aligned_ends || bounds == GroupBounds::counts;
}

/// Group `g`'s range, within the dimension whatever the arrays hold.
CLEAVE_HD GroupRange group_range(const GroupParams& p, uint32_t g) {
  int64_t begin = 0, end = 0;
  switch (p.bounds) {
    case GroupBounds::ends:
    case GroupBounds::aligned_ends:
      begin = g == 0 ? 0 : group_value(p, p.offsets, g - 1);
      end = group_value(p, p.offsets, g);
      break;
    case GroupBounds::indptr:
      begin = group_value(p, p.offsets, g);
      end = group_value(p, p.offsets, g + 1);
      break;
    case GroupBounds::starts:
      begin = group_value(p, p.offsets, g);
      break;
    case GroupBounds::counts:
      begin = int64_t(g) * p.spacing;
      break;
  }
  const int64_t extent = p.extent;
  begin = min_of(max_of<int64_t>(begin, 0), extent);
  if (p.bounds == GroupBounds::aligned_ends) begin = ceil_div<int64_t>(begin, p.spacing) * p.spacing;
  // TMA loads from where a group begins, though it holds nothing: where the spacing says, never where
  // the dimension happens to end.
  if (is_spaced(p.bounds) && begin >= extent) return {};
  begin = min_of(begin, extent);
  if (p.bounds == GroupBounds::starts || p.bounds == GroupBounds::counts)
    end = begin + min_of(max_of<int64_t>(group_value(p, p.sizes, g), 0), extent - begin);
  if (p.bounds == GroupBounds::counts) end = min_of(end, begin + p.spacing);
  end = min_of(max_of(end, begin), extent);
  return {uint32_t(begin), uint32_t(end)};
}

/// Elements of K in a row of a group's own matrices, where its operands lie apart from others'; those of earlier
/// groups are `begin` times as many as there are rows.
CLEAVE_HD constexpr uint32_t group_room(const GroupParams& p, GroupRange range) {
  return round_up(range.size(), p.spacing);
}

/// Steps of `step` elements that cover a group: tiles where M or N is grouped, k blocks where K is.
/// A group of K has at least one, of zeros, since its D has to be written.
CLEAVE_HD constexpr uint32_t group_steps(Grouping grouping, GroupRange range, uint32_t step) {
  return max_of(ceil_div(range.size(), step), grouping == Grouping::k ? 1u : 0u);
}

/// The most steps that groups apart from each other can have in all. Every group that has anything
/// brings a step for its first element; a group of K has one anyway, so that there the longest line
/// is that of a single group which holds everything.
CLEAVE_HD constexpr uint32_t most_group_steps(Grouping grouping, uint32_t extent, uint32_t groups, uint32_t step) {
  const bool of_k = grouping == Grouping::k;
  const uint32_t first = min_of(of_k ? 1u : groups, extent);
  return (of_k ? groups : first) + (extent - first) / step;
}

/// The most steps before the last `left` groups: groups that overlap, which are an error of the
/// caller's, have no more steps either. The last ones lose theirs, but for the one of a group of K,
/// and workspaces are large enough whatever the bounds say.
CLEAVE_HD constexpr uint32_t most_steps_before(Grouping grouping, uint32_t most, uint32_t left) {
  return most - (grouping == Grouping::k ? left : 0);
}

/// The steps of groups in a row, `most` at the most: those of groups that overlap may be more than 32
/// bits count. The sum of two such numbers is not, since a step has many elements.
CLEAVE_HD constexpr uint32_t add_steps(uint32_t x, uint32_t y, uint32_t most) {
  return min_of(x + y, most);
}

/// The table. `before` has one entry more than there are groups: the last is the total.
struct GroupTable {
  const GroupRange* ranges = nullptr;
  const uint32_t* before = nullptr;  // steps of all earlier groups
  uint32_t count = 0;

  CLEAVE_HD constexpr uint32_t steps() const { return before[count]; }
  CLEAVE_HD constexpr uint32_t steps(uint32_t g) const { return before[g + 1] - before[g]; }
};

/// Bytes of the table's arrays: ranges, then `before`.
CLEAVE_HD constexpr uint32_t group_table_bytes(uint32_t groups) {
  return groups * uint32_t(sizeof(GroupRange)) + (groups + 1) * uint32_t(sizeof(uint32_t));
}

}  // namespace cleave

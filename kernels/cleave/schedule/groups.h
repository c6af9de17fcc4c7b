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

/// Part of the grouped dimension, or of the line of its groups' steps.
struct GroupRange {
  uint32_t begin = 0, end = 0;

  CLEAVE_HD constexpr uint32_t size() const { return end - begin; }
};

CLEAVE_HD int64_t group_value(const GroupParams& p, const void* array, uint32_t i) {
  return p.wide ? static_cast<const int64_t*>(array)[i] : static_cast<const int32_t*>(array)[i];
}

/// A value as a place in the grouped dimension: never negative, nor beyond its end.
CLEAVE_HD constexpr uint32_t within_extent(const GroupParams& p, int64_t value) {
  return uint32_t(min_of(max_of<int64_t>(value, 0), int64_t(p.extent)));
}
CLEAVE_HD constexpr uint32_t within_extent(const GroupParams& p, int32_t value) {
  return min_of(uint32_t(max_of(value, 0)), p.extent);
}

/// Whether groups begin at multiples of the spacing.
CLEAVE_HD constexpr bool is_spaced(GroupBounds bounds) {
  return bounds == GroupBounds::aligned_ends || bounds == GroupBounds::counts;
}

/// The range of group `g`, which begins where the one before ends.
template <class Integer>
CLEAVE_HD GroupRange range_by_ends(const GroupParams& p, uint32_t g) {
  const auto ends = static_cast<const Integer*>(p.offsets);
  const Integer before = ends[g == 0 ? 0 : g - 1], own = ends[g];
  const uint32_t begin = g == 0 ? 0 : within_extent(p, before);
  return {begin, max_of(begin, within_extent(p, own))};
}

/// Group `g`'s range, within the dimension whatever the arrays hold. A CTA's first loads wait for it: both bounds are
/// read at once, and the most frequent kind takes the shortest way.
CLEAVE_HD GroupRange group_range(const GroupParams& p, uint32_t g) {
  if (p.bounds == GroupBounds::ends) return p.wide ? range_by_ends<int64_t>(p, g) : range_by_ends<int32_t>(p, g);
  const bool aligned = p.bounds == GroupBounds::aligned_ends;
  const bool counted = p.bounds == GroupBounds::counts, sized = counted || p.bounds == GroupBounds::starts;
  int64_t first = group_value(p, counted ? p.sizes : p.offsets, aligned && g > 0 ? g - 1 : g);
  const int64_t second = group_value(p, sized ? p.sizes : p.offsets, g + (p.bounds == GroupBounds::indptr));
  if (aligned && g == 0) first = 0;
  if (counted) first = int64_t(g) * p.spacing;
  uint32_t begin = within_extent(p, first);
  const uint32_t end = within_extent(p, second);
  if (aligned) {
    const uint32_t beyond = begin % p.spacing;
    begin += min_of(beyond == 0 ? 0 : p.spacing - beyond, p.extent - begin);
  }
  // TMA loads from where a group begins, though it holds nothing: where the spacing says, never where
  // the dimension happens to end.
  if (is_spaced(p.bounds) && begin >= p.extent) return {};
  uint32_t size = sized ? min_of(end, p.extent - begin) : max_of(end, begin) - begin;
  if (counted) size = min_of(size, p.spacing);
  return {begin, begin + size};
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

/// A group: its part of the dimension, and its part of the line of all groups' steps, side by side.
struct alignas(16) GroupEntry {
  GroupRange range, steps;
};

/// The table: an entry for each group, and one for all of them, which says where a walk had best begin.
struct GroupTable {
  const GroupEntry* entries = nullptr;
  uint32_t count = 0;

  CLEAVE_HD static constexpr GroupEntry entry_of_all(uint32_t first_group, uint32_t steps) {
    return {{first_group, first_group}, {0, steps}};
  }
  CLEAVE_HD constexpr uint32_t first_group() const { return entries[count].range.begin; }
  CLEAVE_HD constexpr uint32_t steps() const { return entries[count].steps.end; }
};

/// Bytes of the table, aligned as its entries are.
CLEAVE_HD constexpr uint32_t group_table_bytes(uint32_t groups) {
  return (groups + 1) * uint32_t(sizeof(GroupEntry));
}

}  // namespace cleave

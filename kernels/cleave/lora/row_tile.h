// Which rows a cluster has.
#pragma once

#include "cleave/ptx/load_global.h"
#include "cleave/schedule/groups.h"

namespace cleave {

/// Rows of one group, none if `begin` is `end`.
struct RowTile {
  uint32_t group = 0, begin = 0, end = 0;
};

/// Neighbouring groups that end where offsets say (GroupBounds::ends), as group_range has them; empty beyond the last.
template <uint32_t Count>
CLEAVE_DEVICE void load_ranges(const GroupParams& p, uint32_t first, GroupRange (&ranges)[Count]) {
  uint32_t low[Count + 1], high[Count + 1];
  CLEAVE_UNROLL
  for (uint32_t i = 0; i <= Count; ++i) {
    const uint32_t g = first + i - 1;
    const bool exists = first + i != 0 && g < p.count;
    const char* const from = static_cast<const char*>(p.offsets) + uint64_t(g) * (p.wide ? 8 : 4);
    ptx::load_global_if<4>(&low[i], from, exists);
    ptx::load_global_if<4>(&high[i], from + 4, exists && p.wide);
  }
  const auto end = [&](uint32_t i) {
    const int64_t value = p.wide ? int64_t(uint64_t(high[i]) << 32 | low[i]) : int32_t(low[i]);
    return uint32_t(min_of<int64_t>(max_of<int64_t>(value, 0), p.extent));
  };
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < Count; ++i) ranges[i] = {end(i), max_of(end(i), end(i + 1))};
}

/// Tile `number` of the groups' tiles of `step` rows, in their order. By whole warps, each for itself: a lane has 8
/// groups of every 256, whose ends are on their way together. Nothing from the last tile on.
CLEAVE_DEVICE RowTile find_row_tile(const GroupParams& p, uint32_t step, uint32_t number) {
  constexpr uint32_t kOfLane = 8;
  const uint32_t most = most_group_steps(Grouping::m, p.extent, p.count, step);
  const uint32_t lane = threadIdx.x % 32;
  uint32_t before = 0;
  CLEAVE_NO_UNROLL
  for (uint32_t first = 0; first < p.count; first += 32 * kOfLane) {
    const uint32_t own = first + lane * kOfLane;
    GroupRange ranges[kOfLane];
    load_ranges(p, own, ranges);
    uint32_t of_lane = 0;
    CLEAVE_UNROLL
    for (const GroupRange& range : ranges) of_lane = add_steps(of_lane, group_steps(Grouping::m, range, step), most);
    uint32_t until = of_lane;
    CLEAVE_UNROLL
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
      const uint32_t other = __shfl_up_sync(0xffffffffu, until, distance);
      if (lane >= distance) until = add_steps(until, other, most);
    }
    until = add_steps(before, until, most);
    const uint32_t past = __ballot_sync(0xffffffffu, until > number);
    if (past == 0) {
      before = __shfl_sync(0xffffffffu, until, 31);
      continue;
    }
    RowTile tile;
    uint32_t from = until - of_lane;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kOfLane; ++i) {
      const uint32_t steps = group_steps(Grouping::m, ranges[i], step);
      if (number - from < steps) {
        const uint32_t begin = ranges[i].begin + (number - from) * step;
        tile = {own + i, begin, min_of(begin + step, ranges[i].end)};
      }
      from += steps;
    }
    const uint32_t owner = __ffs(int(past)) - 1;
    return {__shfl_sync(0xffffffffu, tile.group, owner), __shfl_sync(0xffffffffu, tile.begin, owner),
            __shfl_sync(0xffffffffu, tile.end, owner)};
  }
  return {};
}

}  // namespace cleave

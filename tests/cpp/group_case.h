// Randomly drawn groups, with the arrays that describe them.
#pragma once

#include <utility>
#include <vector>

#include "cleave/gemm.h"
#include "cleave/schedule/groups.h"
#include "random.h"

namespace cleave {

inline constexpr GroupBounds kBounds[] = {GroupBounds::ends, GroupBounds::indptr, GroupBounds::starts,
                                          GroupBounds::aligned_ends, GroupBounds::counts};

/// Values in the memory of int32 or int64, whichever is asked for.
class GroupArray {
 public:
  void push_back(int64_t value) {
    wide_.push_back(value);
    narrow_.push_back(int32_t(value));
  }
  const void* data(bool wide) const { return wide ? static_cast<const void*>(wide_.data()) : narrow_.data(); }

 private:
  std::vector<int64_t> wide_;
  std::vector<int32_t> narrow_;
};

/// Groups that are apart from each other: empty ones, single elements, larger ones, and sometimes a
/// giant.
struct GroupCase {
  /// `spacing`: what aligned groups begin at a multiple of. `largest`: of all groups but a giant,
  /// which has ten times as much.
  GroupCase(Random& random, GroupBounds bounds, uint32_t count, uint32_t largest, uint32_t spacing) {
    layout.bounds = bounds;
    layout.wide = random.coin();
    layout.spacing = bounds == GroupBounds::counts ? round_up(largest + 1, spacing) : spacing;
    const int64_t giant = random.number(0, 2 * count);
    const bool gaps = bounds == GroupBounds::starts && random.coin();
    uint32_t position = 0;
    if (bounds == GroupBounds::indptr || gaps) position = uint32_t(random.number(0, 9));
    for (uint32_t g = 0; g < count; ++g) {
      const uint32_t sizes[] = {0, 1, uint32_t(random.number(0, largest)), largest};
      uint32_t size = random.pick(sizes);
      if (g == giant && bounds != GroupBounds::counts) size = largest * 10;
      if (bounds == GroupBounds::counts) position = g * uint32_t(layout.spacing);
      if (bounds == GroupBounds::aligned_ends) position = round_up(position, spacing);
      if (gaps) position += uint32_t(random.number(0, 9));
      ranges.push_back({position, position + size});
      position += size;
    }
    extent = position + uint32_t(random.number(0, 9));
    if (bounds == GroupBounds::counts) extent = count * uint32_t(layout.spacing);
    // Starts may come in any order.
    if (bounds == GroupBounds::starts && count > 1 && random.coin()) {
      std::swap(ranges.front(), ranges.back());
    }
    describe();
  }

  uint32_t count() const { return uint32_t(ranges.size()); }
  const void* offsets_data() const { return offsets.data(layout.wide); }
  const void* sizes_data() const { return sizes.data(layout.wide); }

  GroupLayout layout;
  std::vector<GroupRange> ranges;
  uint32_t extent = 0;
  GroupArray offsets, sizes;

 private:
  void describe() {
    if (layout.bounds == GroupBounds::indptr) offsets.push_back(ranges.front().begin);
    for (const GroupRange range : ranges) {
      offsets.push_back(layout.bounds == GroupBounds::starts ? range.begin : range.end);
      sizes.push_back(range.size());
    }
  }
};

}  // namespace cleave

#include "operands/check_bounds.h"

#include <algorithm>
#include <vector>

#include "base/refuse.h"
#include "cleave/core/saturate.h"
#include "problem/problem.h"

namespace cleave {
namespace {

/// The bounds of one launch, on the host.
class Values {
 public:
  Values(const GemmProblem& problem, const void* offsets, const void* sizes)
      : layout_(problem.groups),
        count_(problem.batch),
        extent_(grouped_extent(problem)),
        offsets_(offsets),
        sizes_(sizes) {}

  void check() const {
    switch (layout_.bounds) {
      case GroupBounds::ends:
        return check_increasing("offs", count_);
      case GroupBounds::indptr:
        return check_increasing("indptr", count_ + 1);
      case GroupBounds::starts:
        return check_starts();
      case GroupBounds::aligned_ends:
        return check_aligned();
      case GroupBounds::counts:
        return check_sizes("counts");
    }
  }

 private:
  int64_t at(const void* array, int64_t i) const {
    return layout_.wide ? static_cast<const int64_t*>(array)[i] : static_cast<const int32_t*>(array)[i];
  }

  void check_increasing(const char* name, int64_t count) const {
    int64_t before = 0;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t value = at(offsets_, i);
      if (value < 0) {
        refuse_value("{}[{}] is {}; offsets must not be negative", name, i, value);
      }
      if (value < before) {
        refuse_value(
            "{0}[{1}] is {2}, but {0}[{3}] is {4}: offsets must not decrease. Pass a running total of the groups' "
            "sizes",
            name, i, value, i - 1, before);
      }
      if (value > extent_) {
        refuse_value("{}[{}] is {}, but the grouped dimension has {} elements; pass at most that", name, i, value,
                     extent_);
      }
      before = value;
    }
  }

  void check_aligned() const {
    check_increasing("offs", count_);
    for (int64_t i = 1; i < count_; ++i) {
      const int64_t before = at(offsets_, i - 1), end = at(offsets_, i);
      const int64_t past = before % layout_.spacing;
      const int64_t begin = past == 0 ? before : saturating_sum(before, layout_.spacing - past);
      if (end == before || end >= begin) continue;
      refuse_value(
          "offs[{}] is {}, but the group begins at {}, offs[{}] = {} rounded up to a multiple of alignment = {}; pass "
          "offsets that count the padding, too",
          i, end, begin, i - 1, before, layout_.spacing);
    }
  }

  void check_starts() const {
    check_sizes("sizes");
    std::vector<int64_t> order;
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t start = at(offsets_, i), size = at(sizes_, i);
      if (start < 0) refuse_value("starts[{}] is {}; offsets must not be negative", i, start);
      if (start > extent_ || size > extent_ - start) {
        refuse_value(
            "starts[{0}] is {1} and sizes[{0}] is {2}, but the grouped dimension has {3} elements; let the group end "
            "there",
            i, start, size, extent_);
      }
      if (size > 0) order.push_back(i);
    }
    std::ranges::sort(order, {}, [&](int64_t i) { return at(offsets_, i); });
    for (size_t j = 1; j < order.size(); ++j) {
      const int64_t before = order[j - 1], after = order[j];
      if (at(offsets_, before) + at(sizes_, before) <= at(offsets_, after)) continue;
      refuse_value(
          "starts[{0}] is {1} and sizes[{0}] is {2}, but starts[{3}] is {4}: the groups overlap. Pass groups apart "
          "from each other",
          before, at(offsets_, before), at(sizes_, before), after, at(offsets_, after));
    }
  }

  void check_sizes(const char* name) const {
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t size = at(sizes_, i);
      if (size < 0) refuse_value("{}[{}] is {}; sizes must not be negative", name, i, size);
      if (layout_.bounds == GroupBounds::counts && size > layout_.spacing) {
        refuse_value("{}[{}] is {}, but a group has room for {}; pass at most that", name, i, size, layout_.spacing);
      }
    }
  }

  const GroupLayout& layout_;
  int64_t count_, extent_;
  const void *offsets_, *sizes_;
};

}  // namespace

void check_bounds(const GemmProblem& problem, const void* offsets, const void* sizes) {
  Values(problem, offsets, sizes).check();
}

}  // namespace cleave

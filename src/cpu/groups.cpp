#include "cpu/groups.h"

#include <algorithm>

#include "problem/problem.h"

namespace cleave::cpu {

uint32_t most_group_steps(const GemmProblem& problem, uint32_t step) {
  return cleave::most_group_steps(problem.groups.dimension, uint32_t(grouped_extent(problem)), uint32_t(problem.batch),
                                  step);
}

Groups::Groups(const GemmProblem& problem, const GemmArguments& arguments, uint32_t step)
    : extent_(uint32_t(grouped_extent(problem))) {
  const GroupLayout& layout = problem.groups;
  if (layout.dimension == Grouping::none) return;
  GroupParams params = group_params(problem);
  params.offsets = arguments.group_offsets;
  params.sizes = arguments.group_sizes;
  const uint32_t most = most_group_steps(problem, step);
  entries_.resize(params.count + 1);
  uint32_t steps = 0;
  for (uint32_t g = 0; g < params.count; ++g) {
    const GroupRange range = group_range(params, g);
    const uint32_t before = steps, most_here = most_steps_before(layout.dimension, most, params.count - g - 1);
    steps = add_steps(steps, group_steps(layout.dimension, range, step), most_here);
    entries_[g] = {range, {before, steps}};
  }
  entries_.back() = GroupTable::entry_of_all(0, steps);
}

std::vector<GroupRange> Groups::rest() const {
  std::vector<GroupRange> ranges, rest;
  for (uint32_t g = 0; g < table().count; ++g) ranges.push_back(entries_[g].range);
  std::sort(ranges.begin(), ranges.end(), [](GroupRange x, GroupRange y) { return x.begin < y.begin; });
  ranges.push_back({extent_, extent_});
  uint32_t end = 0;
  for (const GroupRange range : ranges) {
    if (range.size() == 0 && range.begin < extent_) continue;
    if (range.begin > end) rest.push_back({end, range.begin});
    end = max_of(end, range.end);
  }
  return rest;
}

}  // namespace cleave::cpu

// The table of a grouped product's groups, as the schedule wants it (schedule/groups.h).
#pragma once

#include <vector>

#include "cleave/gemm.h"
#include "cleave/schedule/groups.h"

namespace cleave::cpu {

/// The most steps of `step` elements that groups apart from each other can have in all.
uint32_t most_group_steps(const GemmProblem& problem, uint32_t step);

/// Made for one run, from the bounds that it is given. Groups that overlap, which are an error of
/// the caller's, have no more than `most_group_steps` either: the last ones lose theirs, and the
/// workspace is large enough whatever the bounds say.
class Groups {
 public:
  Groups(const GemmProblem& problem, const GemmArguments& arguments, uint32_t step);

  GroupTable table() const { return {entries_.data(), uint32_t(entries_.size()) - 1}; }

  /// What of the grouped dimension belongs to no group.
  std::vector<GroupRange> rest() const;

 private:
  std::vector<GroupEntry> entries_{GroupEntry{}};  // the last one: of all groups
  uint32_t extent_;
};

}  // namespace cleave::cpu

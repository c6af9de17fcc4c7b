// The plans that Python used last.
#pragma once

#include <nanobind/nanobind.h>

#include <array>

#include "problem/problem_hash.h"

namespace cleave::python {

/// The plan of a problem, made without the GIL.
template <class Problem>
auto make_plan(const Problem& problem) {
  const nanobind::gil_scoped_release unlocked;
  return plan(problem);
}

/// A direct-mapped cache by problem, guarded by the GIL. A miss costs little, since cleave::plan has a
/// cache of its own.
template <class Problem>
class RecentPlans {
 public:
  using Plan = decltype(make_plan(Problem()));  // shared: a call outlives its place here

  /// The plan of an equal problem, or a new one.
  Plan get(const Problem& problem) {
    Slot& slot = slots_[ProblemHash()(problem) % slots_.size()];
    if (slot.plan && slot.problem == problem) return slot.plan;
    Plan made = make_plan(problem);
    slot = {problem, made};
    return made;
  }

  void clear() {
    slots_ = {};
    ++cleared_;
  }

  /// How often: who keeps plans elsewhere asks.
  uint64_t cleared() const { return cleared_; }

  /// Never destroyed: at exit the driver may be unloaded before static objects are destroyed.
  static RecentPlans& shared() {
    static RecentPlans& plans = *new RecentPlans;
    return plans;
  }

 private:
  struct Slot {
    Problem problem;
    Plan plan;
  };

  std::array<Slot, 512> slots_;
  uint64_t cleared_ = 0;
};

}  // namespace cleave::python

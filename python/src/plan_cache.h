// The plans that Python used last.
#pragma once

#include <array>
#include <memory>

#include "cleave/gemm.h"
#include "problem/problem_hash.h"

namespace cleave::python {

/// By problem. Direct-mapped, guarded by the GIL. A miss costs little, as cleave::plan has a cache of
/// its own.
template <class Problem, class Plan>
class RecentPlans {
 public:
  std::shared_ptr<const Plan> find(const Problem& problem) const {
    const Slot& slot = slots_[ProblemHash()(problem) % kSlots];
    return slot.plan && slot.problem == problem ? slot.plan : nullptr;
  }

  void insert(const Problem& problem, std::shared_ptr<const Plan> plan) {
    slots_[ProblemHash()(problem) % kSlots] = {problem, std::move(plan)};
  }

  void clear() { slots_ = {}; }

  /// Never destroyed: at exit the driver may be gone before static objects are.
  static RecentPlans& shared() {
    static RecentPlans& plans = *new RecentPlans;
    return plans;
  }

 private:
  struct Slot {
    Problem problem;
    std::shared_ptr<const Plan> plan;
  };

  static constexpr size_t kSlots = 512;
  std::array<Slot, kSlots> slots_;
};

using PlanCache = RecentPlans<GemmProblem, GemmPlan>;

}  // namespace cleave::python

// The plans that Python used last.
#pragma once

#include <array>
#include <memory>

#include "cleave/gemm.h"
#include "plan/problem_hash.h"

namespace cleave::python {

/// Direct-mapped, guarded by the GIL. A hit says that the plan has run before: its next launch
/// compiles nothing, so it is worth no release of the GIL. A miss costs little more than that, as
/// cleave::plan has a cache of its own.
class PlanCache {
 public:
  std::shared_ptr<const GemmPlan> find(const GemmProblem& problem) const {
    const Slot& slot = slots_[ProblemHash()(problem) % kSlots];
    return slot.plan && slot.problem == problem ? slot.plan : nullptr;
  }

  void insert(const GemmProblem& problem, std::shared_ptr<const GemmPlan> plan) {
    slots_[ProblemHash()(problem) % kSlots] = {problem, std::move(plan)};
  }

  void clear() { slots_ = {}; }

  /// Never destroyed: at exit the driver may be gone before static objects are.
  static PlanCache& shared() {
    static PlanCache& cache = *new PlanCache;
    return cache;
  }

 private:
  struct Slot {
    GemmProblem problem;
    std::shared_ptr<const GemmPlan> plan;
  };

  static constexpr size_t kSlots = 512;
  std::array<Slot, kSlots> slots_;
};

}  // namespace cleave::python

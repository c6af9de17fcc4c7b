// From a problem to its plan: look up, or validate and make.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/refuse.h"
#include "cleave/error.h"
#include "problem/problem_hash.h"
#include "problem/rules.h"
#include "process/fork.h"
#include "process/plan_map.h"

namespace cleave {

/// Throws Error with every rule of `validate` that `problem` breaks.
template <class Problem>
void refuse_invalid(const Problem& problem) {
  const auto broken = validate(problem);
  if (broken.empty()) return;
  refuse(types_are_served(problem) ? ErrorCode::invalid_argument : ErrorCode::invalid_type, "{}",
         fmt::join(broken, "; "));
}

/// The process's plans of one kind of problem.
template <class Plan, size_t most_bytes, class Problem>
PlanMap<Problem, Plan, ProblemHash>& known_plans() {
  using Plans = PlanMap<Problem, Plan, ProblemHash>;
  static constinit Lazy<Plans> plans;
  return plans.get([] { return Plans(most_bytes); });
}

/// The process's plan of `problem`: of the host by make_cpu_plan, else by `make_gpu_plan`, the first time or when
/// `most_bytes` of others were used since. Throws as refuse_invalid.
template <class Plan, size_t most_bytes, class Problem, class MakeGpuPlan>
std::shared_ptr<const Plan> cached_plan(const Problem& problem, const MakeGpuPlan& make_gpu_plan) {
  auto& plans = known_plans<Plan, most_bytes, Problem>();
  if (auto known = plans.find(problem)) return known;
  refuse_invalid(problem);
  if (problem.device == kCpu) return plans.insert(problem, make_cpu_plan(problem));
  return plans.insert(problem, make_gpu_plan(problem));
}

}  // namespace cleave

// From a problem to its plan: look up, or validate and make.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cleave/error.h"
#include "plan/plan_map.h"

namespace cleave {

/// The process's plan of `problem`, made by `make` the first time. Throws Error with every rule of
/// `validate` that it breaks.
template <class Plan, class Hash, class Problem, class Make>
std::shared_ptr<const Plan> cached_plan(const Problem& problem, const Make& make) {
  static PlanMap<Problem, Plan, Hash> plans;
  if (auto known = plans.find(problem)) return known;
  if (const auto broken = validate(problem); !broken.empty()) {
    throw Error(types_are_served(problem) ? ErrorCode::invalid_argument : ErrorCode::invalid_type,
                fmt::format("{}", fmt::join(broken, "; ")));
  }
  return plans.insert(problem, make());
}

}  // namespace cleave

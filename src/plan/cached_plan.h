// From a problem to its plan: look up, or validate and make.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cleave/error.h"
#include "plan/plan_map.h"
#include "process/fork.h"

namespace cleave {

/// The process's plan of `problem`, made by `make` the first time, or when `most_bytes` of others
/// were used since. Throws Error with every rule of `validate` that it breaks.
template <class Plan, class Hash, size_t most_bytes, class Problem, class Make>
std::shared_ptr<const Plan> cached_plan(const Problem& problem, const Make& make) {
  using Plans = PlanMap<Problem, Plan, Hash>;
  static constinit Lazy<Plans> lazy;
  Plans& plans = lazy.get([] { return Plans(most_bytes); });
  if (auto known = plans.find(problem)) return known;
  if (const auto broken = validate(problem); !broken.empty()) {
    throw Error(types_are_served(problem) ? ErrorCode::invalid_argument : ErrorCode::invalid_type,
                fmt::format("{}", fmt::join(broken, "; ")));
  }
  return plans.insert(problem, make());
}

}  // namespace cleave

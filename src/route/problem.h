// Facts that follow from a RouteProblem alone, whatever device runs it.
#pragma once

#include "cleave/route.h"
#include "cleave/route/route_config.h"
#include "cpu/thread_team.h"
#include "problem/rules.h"

namespace cleave {

/// Which dtypes go together.
void check_types(const RouteProblem& problem, Messages& out);

/// What is fixed when its kernel is compiled. The CPU backend follows it as well.
RouteConfig config_of(const RouteProblem& problem);

/// check_operands of what a launch is given.
void check_arguments(const RouteProblem& problem, const RouteArguments& arguments);

/// A plan for the host of `problem`, which has passed `validate`. At most `threads` threads run it;
/// their number does not change its results.
std::shared_ptr<const RoutePlan> make_cpu_plan(const RouteProblem& problem,
                                               uint32_t threads = cpu::available_threads());

}  // namespace cleave

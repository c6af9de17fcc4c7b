// Facts that follow from a RouterLogitsProblem alone, whatever device runs it.
#pragma once

#include "cleave/route/logits_config.h"
#include "cleave/router_logits.h"
#include "cpu/thread_team.h"
#include "problem/rules.h"

namespace cleave {

/// Which dtypes go together.
void check_types(const RouterLogitsProblem& problem, Messages& out);

/// What is fixed when its kernel is compiled.
LogitsConfig config_of(const RouterLogitsProblem& problem);

/// check_operands of what a launch is given.
void check_arguments(const RouterLogitsProblem& problem, const RouterLogitsArguments& arguments);

/// A plan for the host of `problem`, which has passed `validate`. At most `threads` threads run it;
/// their number does not change its results.
std::shared_ptr<const RouterLogitsPlan> make_cpu_plan(const RouterLogitsProblem& problem,
                                                      uint32_t threads = cpu::available_threads());

}  // namespace cleave

// Facts that follow from a FoldProblem alone, whatever device runs it.
#pragma once

#include "cleave/epilogue.h"
#include "cleave/fold.h"
#include "cleave/peers/fold_config.h"
#include "cpu/thread_team.h"
#include "problem/rules.h"

namespace cleave {

/// Half of the sum's, under gates.
int64_t columns_of_d(const FoldProblem& problem);

inline Gates gates_of(const FoldProblem& problem) {
  return problem.function == nullptr ? Gates::none : problem.function->gates();
}

inline bool finds_scales(const FoldProblem& problem) {
  return problem.scale_out.kind == Scaling::block;
}

/// Which dtypes go together.
void check_types(const FoldProblem& problem, Messages& out);

/// What is fixed when its kernel is compiled. What it does not use keeps its default.
FoldConfig config_of(const FoldProblem& problem);

/// check_operands of what a launch is given.
void check_arguments(const FoldProblem& problem, const FoldArguments& arguments);

/// A plan for the host of `problem`, which has passed `validate`. At most `threads` threads run it;
/// their number does not change its results.
std::shared_ptr<const FoldPlan> make_cpu_plan(const FoldProblem& problem, uint32_t threads = cpu::available_threads());

}  // namespace cleave

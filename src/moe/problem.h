// Facts that follow from a MoeProblem alone, whatever device runs it.
#pragma once

#include "cleave/moe.h"
#include "cpu/thread_team.h"
#include "problem/rules.h"

namespace cleave {

// What an operation reads or writes.
bool reads_ids(MoeOperation operation);
bool has_indices(MoeOperation operation);
bool has_rows(MoeOperation operation);  ///< and tokens

/// Which dtypes go together.
void check_types(const MoeProblem& problem, Messages& out);

int64_t slots_of(const MoeProblem& problem);
int64_t scales_of(const MoeProblem& problem);  ///< of a row, where rows are scaled

// Matrices that a problem reads or writes. What takes no part in it is empty.
Placement tokens_of(const MoeProblem& problem);
Placement rows_of(const MoeProblem& problem);
Placement rows_grad_of(const MoeProblem& problem);

/// check_operands of what a launch is given.
void check_arguments(const MoeProblem& problem, const MoeArguments& arguments);

/// A plan for the host of `problem`, which has passed `validate`. At most `threads` threads run it;
/// their number does not change its results.
std::shared_ptr<const MoePlan> make_cpu_plan(const MoeProblem& problem, uint32_t threads = cpu::available_threads());

}  // namespace cleave

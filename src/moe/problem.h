// Facts that follow from a MoeProblem alone, whatever device runs it.
#pragma once

#include "cleave/moe.h"
#include "cpu/thread_team.h"
#include "problem/placement.h"

namespace cleave {

// What an operation reads or writes.
bool reads_ids(MoeOperation operation);
bool has_indices(MoeOperation operation);
bool has_rows(MoeOperation operation);  ///< and tokens

/// True if kernels exist for the dtypes: of the broken rules of `validate`, none is about a dtype.
bool types_are_served(const MoeProblem& problem);

int64_t slots_of(const MoeProblem& problem);

// What a problem reads and writes. What takes no part in it is empty.
Placement ids_of(const MoeProblem& problem);
Placement offsets_of(const MoeProblem& problem);
Placement indices_of(const MoeProblem& problem);
Placement tokens_of(const MoeProblem& problem);
Placement rows_of(const MoeProblem& problem);
Placement weights_of(const MoeProblem& problem);
Placement rows_grad_of(const MoeProblem& problem);
Placement weights_grad_of(const MoeProblem& problem);

/// Throws invalid_argument for a missing or misaligned pointer, and for something that is written
/// sharing elements with anything else. Costs a few comparisons, so every run makes them.
void check_arguments(const MoeProblem& problem, const MoeArguments& arguments);

/// A plan for the host of `problem`, which has passed `validate`. At most `threads` threads run it;
/// their number does not change its results.
std::shared_ptr<const MoePlan> make_cpu_plan(const MoeProblem& problem, uint32_t threads = cpu::available_threads());

}  // namespace cleave

// Facts that follow from a MoeProblem alone, whatever device runs it.
#pragma once

#include "base/mix.h"
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

/// For ProblemHash.
inline void mix_in(const MoeProblem& p, Mix& mix) {
  mix(uint64_t(p.tokens) << 32 ^ uint64_t(p.columns));
  mix(uint64_t(p.token.stride_row) << 32 ^ uint64_t(p.row.stride_row));
  mix(uint64_t(p.experts) << 32 ^ uint64_t(p.top_k));
  mix(uint64_t(p.operation) << 32 ^ uint64_t(p.token.dtype) << 28 ^ uint64_t(p.weights_dtype) << 24 ^
      uint64_t(p.has_weights) << 20 ^ uint64_t(p.wide_ids) << 16 ^ uint64_t(p.token.alignment) << 8 ^
      uint64_t(p.device + 2));
}

}  // namespace cleave

// Facts that follow from a FoldProblem alone, whatever device runs it.
#pragma once

#include "base/mix.h"
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

/// For ProblemHash.
inline void mix_in(const FoldProblem& p, Mix& mix) {
  mix(uint64_t(p.rows) << 32 ^ uint64_t(p.columns));
  mix(uint64_t(p.most_rows) << 32 ^ uint64_t(p.ranks));
  for (const MatrixLayout* layout : {&p.partial, &p.c, &p.d})
    mix(uint64_t(layout->stride_row) << 16 ^ uint64_t(layout->dtype) << 8 ^ layout->alignment);
  mix(uint64_t(p.bias) << 32 ^ uint64_t(p.has_c) << 18 ^ uint64_t(p.has_bias) << 17 ^ uint64_t(p.has_scale_d) << 16 ^
      uint64_t(p.pushed) << 19 ^ uint64_t(p.device + 3));
  mix(uint64_t(p.scale_a.kind) << 24 ^ uint64_t(p.scale_a.stride_row) << 16 ^ uint64_t(p.scale_b.kind) << 8 ^
      uint64_t(p.scale_b.stride_row));
  mix(uint64_t(p.scale_out.stride_row) << 32 ^ uint64_t(p.scale_out.stride_k) << 8 ^ uint64_t(p.scale_out.kind) << 1 ^
      uint64_t(p.ue8m0_scale_out));
  mix(reinterpret_cast<uintptr_t>(p.function));
}

}  // namespace cleave

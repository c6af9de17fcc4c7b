// Facts that follow from a QuantizeProblem alone, whatever device runs it.
#pragma once

#include "base/mix.h"
#include "cleave/quantize.h"
#include "cpu/thread_team.h"
#include "problem/rules.h"

namespace cleave {

/// Which dtypes go together.
void check_types(const QuantizeProblem& problem, Messages& out);

// Matrices that a problem reads or writes. What takes no part in it is empty.
Placement x_of(const QuantizeProblem& problem);
Placement q_of(const QuantizeProblem& problem);
Placement q_t_of(const QuantizeProblem& problem);
Placement residual_of(const QuantizeProblem& problem);
Placement residual_out_of(const QuantizeProblem& problem);
Placement normed_out_of(const QuantizeProblem& problem);

/// check_operands of what a launch is given.
void check_arguments(const QuantizeProblem& problem, const QuantizeArguments& arguments);

/// A plan for the host of `problem`, which has passed `validate`. At most `threads` threads run it;
/// their number does not change its results.
std::shared_ptr<const QuantizePlan> make_cpu_plan(const QuantizeProblem& problem,
                                                  uint32_t threads = cpu::available_threads());

/// For ProblemHash.
inline void mix_in(const QuantizeProblem& p, Mix& mix) {
  mix(uint64_t(p.rows) << 32 ^ uint64_t(p.cols));
  mix(uint64_t(p.x.stride_row) << 32 ^ uint64_t(p.q.stride_row) << 8 ^ uint64_t(p.q.alignment));
  mix(uint64_t(p.groups));
  mix(uint64_t(p.scale.stride_row) << 32 ^ uint64_t(p.scale.stride_col));
  mix(uint64_t(p.x.alignment) << 32 ^ uint64_t(p.x.dtype) << 28 ^ uint64_t(p.q.dtype) << 24 ^
      uint64_t(p.granularity) << 20 ^ uint64_t(p.given_scale) << 16 ^ uint64_t(p.symmetric) << 12 ^
      uint64_t(p.has_smooth) << 8 ^ uint64_t(p.has_transpose) << 4 ^ uint64_t(p.device + 2));
  if (p.norm.kind != Norm::none) {
    mix(uint64_t(p.norm.kind) << 16 ^ uint64_t(p.norm.dtype) << 12 ^ uint64_t(p.has_residual) << 8 ^
        uint64_t(p.has_normed) << 4 ^ uint64_t(p.norm.has_weight) << 1 ^ uint64_t(p.norm.has_bias));
  }
}

}  // namespace cleave

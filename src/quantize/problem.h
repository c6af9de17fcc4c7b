// Facts that follow from a QuantizeProblem alone, whatever device runs it.
#pragma once

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

}  // namespace cleave

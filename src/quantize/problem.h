// Facts that follow from a QuantizeProblem alone, whatever device runs it.
#pragma once

#include "cleave/quantize.h"
#include "cpu/thread_team.h"
#include "problem/placement.h"

namespace cleave {

/// True if kernels exist for the dtypes: of the broken rules of `validate`, none is about a
/// dtype.
bool types_are_served(const QuantizeProblem& problem);

// What a problem reads and writes. What takes no part in it is empty.
Placement x_of(const QuantizeProblem& problem);
Placement q_of(const QuantizeProblem& problem);
Placement scale_of(const QuantizeProblem& problem);
Placement zero_of(const QuantizeProblem& problem);
Placement smooth_of(const QuantizeProblem& problem);
Placement q_t_of(const QuantizeProblem& problem);
Placement scale_t_of(const QuantizeProblem& problem);
Placement offsets_of(const QuantizeProblem& problem);
Placement padded_ends_of(const QuantizeProblem& problem);

/// Throws invalid_argument for a missing or misaligned pointer, and for something that is written
/// sharing elements with anything else. Costs a few comparisons, so every run makes them.
void check_arguments(const QuantizeProblem& problem, const QuantizeArguments& arguments);

/// A plan for the host of `problem`, which has passed `validate`. At most `threads` threads run it;
/// their number does not change its results.
std::shared_ptr<const QuantizePlan> make_cpu_plan(const QuantizeProblem& problem,
                                                  uint32_t threads = cpu::available_threads());

}  // namespace cleave

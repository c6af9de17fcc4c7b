// Facts that follow from a LoraProblem alone, whatever device runs it.
#pragma once

#include "cleave/lora.h"
#include "cleave/lora/lora_config.h"
#include "cpu/thread_team.h"
#include "problem/rules.h"

namespace cleave {

/// Which dtypes go together.
void check_types(const LoraProblem& problem, Messages& out);

/// What is fixed when its kernel is compiled for a device of this compute capability.
LoraConfig config_of(const LoraProblem& problem, int compute_capability);

/// check_operands of what a launch is given.
void check_arguments(const LoraProblem& problem, const LoraArguments& arguments);

/// A plan for the host of `problem`, which has passed `validate`. At most `threads` threads run it;
/// their number does not change its results.
std::shared_ptr<const LoraPlan> make_cpu_plan(const LoraProblem& problem, uint32_t threads = cpu::available_threads());

}  // namespace cleave

// Facts that follow from a LoraProblem alone, whatever device runs it.
#pragma once

#include "base/mix.h"
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

/// For ProblemHash.
inline void mix_in(const LoraProblem& p, Mix& mix) {
  mix(uint64_t(p.rows) << 32 ^ uint64_t(p.features));
  mix(uint64_t(p.outputs) << 32 ^ uint64_t(p.adapters) << 8 ^ uint64_t(p.rank));
  for (const MatrixLayout* layout : {&p.x, &p.a, &p.b, &p.out})
    mix(uint64_t(layout->stride_batch) << 32 ^ uint64_t(layout->stride_row) << 8 ^ layout->alignment);
  mix(uint64_t(p.x.dtype) << 16 ^ uint64_t(p.wide_offs) << 8 ^ uint64_t(p.device + 3));
}

}  // namespace cleave

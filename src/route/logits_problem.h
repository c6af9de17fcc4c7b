// Facts that follow from a RouterLogitsProblem alone, whatever device runs it.
#pragma once

#include "base/mix.h"
#include "cleave/route/logits_config.h"
#include "cleave/router_logits.h"
#include "cpu/thread_team.h"
#include "problem/rules.h"

namespace cleave {

/// Which dtypes go together.
void check_types(const RouterLogitsProblem& problem, Messages& out);

/// What is fixed when its kernel is compiled.
LogitsConfig config_of(const RouterLogitsProblem& problem);

/// check_operands of what a launch is given.
void check_arguments(const RouterLogitsProblem& problem, const RouterLogitsArguments& arguments);

/// A plan for the host of `problem`, which has passed `validate`. At most `threads` threads run it;
/// their number does not change its results.
std::shared_ptr<const RouterLogitsPlan> make_cpu_plan(const RouterLogitsProblem& problem,
                                                      uint32_t threads = cpu::available_threads());

/// For ProblemHash.
inline void mix_in(const RouterLogitsProblem& p, Mix& mix) {
  mix(uint64_t(p.tokens) << 32 ^ uint64_t(p.experts));
  mix(uint64_t(p.features) << 32 ^ uint64_t(p.x.stride_row));
  mix(uint64_t(p.weight.stride_row) << 32 ^ uint64_t(p.x.dtype) << 28 ^ uint64_t(p.weight.dtype) << 24 ^
      uint64_t(p.x.alignment) << 16 ^ uint64_t(p.weight.alignment) << 8 ^ uint64_t(p.static_weight) << 7 ^
      uint64_t(p.device + 2));
}

}  // namespace cleave

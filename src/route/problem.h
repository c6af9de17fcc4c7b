// Facts that follow from a RouteProblem alone, whatever device runs it.
#pragma once

#include "base/mix.h"
#include "cleave/route.h"
#include "cleave/route/route_config.h"
#include "cpu/thread_team.h"
#include "problem/rules.h"

namespace cleave {

/// Which dtypes go together.
void check_types(const RouteProblem& problem, Messages& out);

/// What is fixed when its kernel is compiled. The CPU backend follows it as well.
RouteConfig config_of(const RouteProblem& problem);

/// check_operands of what a launch is given.
void check_arguments(const RouteProblem& problem, const RouteArguments& arguments);

/// A plan for the host of `problem`, which has passed `validate`. At most `threads` threads run it;
/// their number does not change its results.
std::shared_ptr<const RoutePlan> make_cpu_plan(const RouteProblem& problem,
                                               uint32_t threads = cpu::available_threads());

/// For ProblemHash.
inline void mix_in(const RouteProblem& p, Mix& mix) {
  mix(uint64_t(p.tokens) << 32 ^ uint64_t(p.logits.stride_row));
  mix(uint64_t(p.experts) << 32 ^ uint64_t(p.top_k) << 16 ^ uint64_t(p.n_group) << 8 ^ uint64_t(p.topk_group));
  mix(uint64_t(p.logits.dtype) << 32 ^ uint64_t(p.logits.alignment) << 24 ^ uint64_t(p.scoring_func) << 20 ^
      uint64_t(p.has_bias) << 18 ^ uint64_t(p.group_score) << 17 ^ uint64_t(p.renormalize) << 16 ^
      uint64_t(p.device + 2));
}

}  // namespace cleave

// The operations on the host.
#pragma once

#include <memory>

#include "cleave/moe.h"
#include "cpu/thread_team.h"

namespace cleave {

/// A plan for `problem`, which has passed `validate`. At most `threads` threads run it; their
/// number does not change its results.
std::shared_ptr<const MoePlan> make_cpu_plan(const MoeProblem& problem,
                                             uint32_t threads = cpu::available_threads());

}  // namespace cleave

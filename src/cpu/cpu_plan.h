// The CPU backend's entry.
#pragma once

#include <memory>

#include "cleave/gemm.h"
#include "cpu/thread_team.h"

namespace cleave {

/// A plan for `problem`, which has passed `validate`. At most `threads` threads run it; their
/// number does not change its results by a bit. Unlike a GPU plan, it allocates while it runs: each
/// thread's packed tiles, and the workspace if it is given none.
std::shared_ptr<const GemmPlan> make_cpu_plan(const GemmProblem& problem, uint32_t threads = cpu::available_threads());

}  // namespace cleave

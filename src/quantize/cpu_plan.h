// Quantisation on the host.
#pragma once

#include <memory>

#include "cleave/quantize.h"
#include "cpu/thread_team.h"

namespace cleave {

/// A plan for `problem`, which has passed `validate`. At most `threads` threads run it; their
/// number does not change its results.
std::shared_ptr<const QuantizePlan> make_cpu_plan(const QuantizeProblem& problem,
                                                  uint32_t threads = cpu::available_threads());

}  // namespace cleave

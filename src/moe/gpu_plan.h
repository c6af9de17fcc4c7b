// The operations on a GPU.
#pragma once

#include <memory>

#include "cleave/moe.h"

namespace cleave {

/// A plan for `problem`, which has passed `validate`.
std::shared_ptr<const MoePlan> make_gpu_plan(const MoeProblem& problem);

}  // namespace cleave

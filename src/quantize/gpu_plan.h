// Quantisation on a GPU.
#pragma once

#include <memory>

#include "cleave/quantize.h"

namespace cleave {

/// A plan for `problem`, which has passed `validate`.
std::shared_ptr<const QuantizePlan> make_gpu_plan(const QuantizeProblem& problem);

}  // namespace cleave

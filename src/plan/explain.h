// What a plan says of why it runs as it does.
#pragma once

#include <cstddef>
#include <string>

#include "cleave/device.h"
#include "cleave/gemm.h"
#include "plan/choice/choice.h"

namespace cleave {

/// `considered`: candidates, or 0 of a measured choice.
std::string explain(const GemmProblem& problem, const Choice& choice, size_t considered);

/// What the promise costs: how far the order of sums that serves all M is from the best for this one.
std::string explain_invariance(const GemmProblem& problem, const DeviceInfo& device);

}  // namespace cleave

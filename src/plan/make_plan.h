// Planning beyond the public API: for tuning, and for tests that want one particular kernel.
#pragma once

#include <memory>
#include <string>

#include "cleave/gemm.h"
#include "plan/choice/spec.h"

namespace cleave {

/// The plan of `problem` that runs as `spec` says. Not cached. Throws Error(unsupported) if it
/// cannot.
CLEAVE_TOOLS std::shared_ptr<const GemmPlan> plan_as(const GemmProblem& problem, const Spec& spec);

/// Makes `plan`'s choice the automatic one for its problem, here and in later processes. Returns
/// the tuning file.
CLEAVE_TOOLS std::string remember(const GemmPlan& plan);

/// Plans are made anew from now on: after a measurement, they may be better.
CLEAVE_TOOLS void forget_plans();

}  // namespace cleave

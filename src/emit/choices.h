// Which kernel an emitted project has for each architecture.
#pragma once

#include <string>
#include <vector>

#include "cleave/gemm.h"
#include "emit/operation.h"

namespace cleave {

/// One choice per architecture in `archs`, or two of a plan of two heights, in order of their names; for none given,
/// the plan's own. Throws Error for plans that emitted projects do not serve, and for an architecture without a kernel.
std::vector<ArchChoice> choose_all(const GemmPlan& plan, std::vector<std::string> archs);

}  // namespace cleave

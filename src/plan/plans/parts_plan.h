// A plan of several launches: a strided data gradient with more classes of pixels than one launch has room for, or a
// convolution whose groups are launched one by one.
#pragma once

#include <memory>
#include <string>

#include "plan/plans/gpu_plan.h"

namespace cleave {

/// All launches of `choice`: for nearly all problems the only one (gpu_plan.h); else `choice` is that of the first part
/// of the classes, or of a group.
std::shared_ptr<const ChosenPlan> make_parts_plan(const GemmProblem& problem, const Choice& choice, std::string why);

}  // namespace cleave

// Checks of what one launch is given. They cost a few comparisons, so every `run` makes them.
#pragma once

#include "cleave/moe.h"

namespace cleave {

/// Throws invalid_argument for a missing or misaligned pointer, and for something that is written
/// sharing elements with anything else.
void check_arguments(const MoeProblem& problem, const MoeArguments& arguments);

}  // namespace cleave

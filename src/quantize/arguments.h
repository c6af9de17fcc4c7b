// Checks of what one launch is given. They cost a few comparisons, so every `run` makes them.
#pragma once

#include "cleave/quantize.h"

namespace cleave {

/// Throws invalid_argument for a missing or misaligned pointer, and for something that is written
/// sharing elements with anything else.
void check_arguments(const QuantizeProblem& problem, const QuantizeArguments& arguments);

}  // namespace cleave

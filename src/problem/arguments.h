// Checks of what one launch is given. They cost a few comparisons, so every `run` makes them.
#pragma once

#include "cleave/gemm.h"

namespace cleave {

/// Throws invalid_argument for a missing or misaligned pointer, and for D sharing elements with A,
/// B or C other than by being C exactly.
void check_arguments(const GemmProblem& problem, const GemmArguments& arguments);

/// Throws invalid_argument unless `workspace` is 16-byte aligned and holds `needed` bytes.
void check_workspace(const void* workspace, size_t size, size_t needed);

}  // namespace cleave

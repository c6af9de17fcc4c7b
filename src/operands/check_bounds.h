// Checks the bounds of groups, for debugging; launches clamp them instead.
#pragma once

#include "cleave/gemm.h"

namespace cleave {

/// Throws Error(invalid_argument), naming the first group and what is wrong with it, unless every
/// group of `problem` lies within the grouped dimension, and none begins before an earlier one ends
/// (`starts` may be in any order). The arrays, those of GemmArguments, are in host memory.
void check_bounds(const GemmProblem& problem, const void* offsets, const void* sizes);

}  // namespace cleave

// Checks of what one launch is given. They cost a few comparisons, so every `run` makes them.
#pragma once

#include "cleave/gemm.h"

namespace cleave {

/// Throws invalid_argument for a missing or misaligned pointer, for D or amax sharing elements with
/// anything that is read (D may be C exactly), and for alpha where D is int32.
void check_arguments(const GemmProblem& problem, const GemmArguments& arguments);

/// Throws invalid_argument, naming the argument, unless `data` is a pointer of the layout's
/// alignment.
void check_pointer(const char* name, const MatrixLayout& layout, const void* data);

/// Throws invalid_argument unless `workspace` is 16-byte aligned and holds `needed` bytes.
void check_workspace(const void* workspace, size_t size, size_t needed);

/// Throws invalid_argument if the `needed` bytes of `workspace` share one with anything that a launch
/// reads or writes.
void check_workspace_apart(const GemmProblem& problem, const GemmArguments& arguments, const void* workspace,
                           size_t needed);

}  // namespace cleave

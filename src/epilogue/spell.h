// An epilogue function as C++.
#pragma once

#include <string>

#include "cleave/epilogue.h"

namespace cleave {

/// Statements that compute its outputs, `out`, of its sum, `acc` (a gated one's second is `up`), and inputs, `in`.
/// Names do not show: functions that differ in no more share a kernel.
std::string function_lines(const EpilogueFunction& function);

/// The function that has these, `run`: of sums, inputs and outputs.
std::string function_definition(const EpilogueFunction& function);

/// Its FunctionBody (kernels/cleave/core/elementwise.h) for the constant `config`, as a kernel's source has it.
std::string function_body(const EpilogueFunction& function);

}  // namespace cleave

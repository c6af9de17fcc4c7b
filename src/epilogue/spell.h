// An epilogue function as C++.
#pragma once

#include <string>

#include "cleave/epilogue.h"

namespace cleave {

/// Its FunctionBody (kernels/cleave/epilogue/function.h) for the constant `config`, as a kernel's source has it. Names
/// do not show: functions that differ in no more share a kernel.
std::string function_body(const EpilogueFunction& function);

}  // namespace cleave

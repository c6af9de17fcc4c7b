// What a kernel is compiled for of an epilogue function.
#pragma once

#include "cleave/config/epilogue_params.h"
#include "cleave/problem.h"

namespace cleave {

/// `problem`, if it is a convolution, is its view as a product (conv_view); `fuses_classes`: ConvConfig's.
FunctionConfig function_config(const GemmProblem& problem, bool fuses_classes);

}  // namespace cleave

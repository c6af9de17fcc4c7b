// What planning without arrays has in common, of matrices and of convolutions.
#pragma once

#include <string_view>

#include "cleave/gemm.h"

namespace cleave::python {

/// "cpu", "cuda", "cuda:1", or "h100" to plan for one without having it.
int parse_device(std::string_view text);

/// "none", "row" or "column".
Bias parse_bias(std::string_view text);

/// The operands' type if a bias can have it, else D's, else bfloat16.
DType bias_type(const GemmProblem& problem);

}  // namespace cleave::python

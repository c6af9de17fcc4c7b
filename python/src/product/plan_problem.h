// Planning without arrays: what matrices and convolutions share.
#pragma once

#include <string_view>

#include "call/parameters.h"

namespace cleave::python {

namespace arg {

// Where there are no arrays, of what they would be.
using OperandDtype = Dtype<"dtype", "'bfloat16'">;
using BiasKind = OneOf<"bias", cleave::Bias, "'none'">;
using Device = Word<"device", "'cuda'">;

}  // namespace arg

/// "cpu", "cuda", "cuda:1", or "h100" or "h200" to plan for one without having it.
int parse_device(std::string_view text);

/// The operands' type if a bias can have it, else D's, else bfloat16.
DType bias_type(const GemmProblem& problem);

}  // namespace cleave::python

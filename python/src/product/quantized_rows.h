// out_scale="row" of all products whose D is a matrix: two kernels, as a row's scale needs all of the row.
#pragma once

#include "call/parameters.h"
#include "inputs/operands.h"

namespace cleave::python {

/// `multiply`, and `quantize` of what it returns: (D, scale). `form`: as of multiply.
nanobind::object multiply_and_quantize_rows(GemmInputs inputs, ProductArguments arguments, const CallArguments& call,
                                            const GemmOptions& form);

}  // namespace cleave::python

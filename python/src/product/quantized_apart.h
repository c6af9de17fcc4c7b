// out_scale="row", "tensor" and "block_128x128" of all products whose D is a matrix: kernels apart, as such a scale
// needs more of D than a tile has.
#pragma once

#include "call/parameters.h"
#include "inputs/operands.h"

namespace cleave::python {

/// `multiply`, and `quantize` of what it returns: (D, scale). `form`: as of multiply.
nanobind::object multiply_and_quantize(GemmInputs inputs, ProductArguments arguments, const CallArguments& call,
                                       const GemmOptions& form, Granularity granularity);

}  // namespace cleave::python

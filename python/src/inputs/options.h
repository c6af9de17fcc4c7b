// Arguments of products that are not arrays.
#pragma once

#include "call/parameters.h"
#include "operands/gemm_operands.h"

namespace cleave::python {

PlanOptions parse_plan_options(const ProductArguments& arguments);

/// `form`: the options that follow from the operation itself.
GemmOptions parse_gemm_options(const ProductArguments& arguments, GemmOptions form);

}  // namespace cleave::python

// The last steps of a call, shared by cleave.gemm and GemmPlan.run.
#pragma once

#include <nanobind/nanobind.h>

#include "cleave/gemm.h"
#include "operands.h"

namespace cleave::python {

/// Sets alpha and beta; beta None is 1 with a C and 0 without. Throws Error(invalid_argument) for a
/// beta without a C.
void set_scalars(const CallArguments& arguments, ProductCall& call);

/// What the kernels of plans for a device are compiled for, as "sm_90a"; empty on the CPU.
std::string arch_of(int device);

/// Compiles, and allocates what `stream` needs.
void prepare(const Plan& plan, nanobind::handle stream);

/// Reads the workspace and runs. Without the GIL, even where that takes microseconds: a full launch
/// queue makes the driver wait, perhaps for a host callback that needs the GIL.
void launch(const GemmPlan& plan, const ProductCall& call, const CallArguments& arguments, TensorReader& reader);

}  // namespace cleave::python

// The last steps of a call, shared by cleave.gemm and GemmPlan.run.
#pragma once

#include <nanobind/nanobind.h>

#include "cleave/gemm.h"
#include "inputs/operands.h"

namespace cleave::python {

/// Sets alpha and beta; beta None is 1 with a C and 0 without. Throws Error(invalid_argument) for a
/// beta without a C.
void set_scalars(const CallArguments& arguments, ProductCall& call);

/// The architecture that a device's kernels are compiled for, such as "sm_90a"; empty on the CPU.
std::string arch_of(int device);

/// Compiles the kernels, and allocates the workspace of `stream`.
void prepare(const Plan& plan, nanobind::handle stream);

/// Reads the workspace and runs, without the GIL even though that takes microseconds only: if the launch
/// queue is full the driver waits, perhaps for a host callback that needs the GIL.
void launch(const GemmPlan& plan, const ProductCall& call, const CallArguments& arguments, TensorReader& reader);

}  // namespace cleave::python

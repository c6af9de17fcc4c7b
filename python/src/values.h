// Arguments that are not arrays: names, numbers, dtypes.
#pragma once

#include <nanobind/nanobind.h>

#include "cleave/gemm.h"
#include "dlpack.h"

namespace cleave::python {

SplitKMode parse_split_k_mode(nanobind::handle value);
Activation parse_activation(nanobind::handle value);
KernelFamily parse_kernel(nanobind::handle value);

/// None gives 0, the planner's choice.
int32_t parse_split_k_slices(nanobind::handle value);
bool parse_deterministic(nanobind::handle value);

/// A number, as float32.
float parse_scalar(nanobind::handle value, const char* name);

/// A name, a torch or NumPy dtype, or an object with a `name` of "float16", "bfloat16" or "float32"
/// (also "f16", "bf16", "f32").
DType parse_dtype(nanobind::handle value, const char* name);

/// Throws Error(invalid_type) for what the library has no kernels for.
DType dtype_of(dlpack::DataType type, const char* name);

/// The name as a Python string that is made once.
nanobind::handle dtype_name(DType dtype);

}  // namespace cleave::python

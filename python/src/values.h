// Arguments that are not arrays: names, numbers, dtypes.
#pragma once

#include <nanobind/nanobind.h>

#include <span>

#include "operands/operand.h"

namespace cleave::python {

SplitKMode parse_split_k_mode(nanobind::handle value);
Activation parse_activation(nanobind::handle value);
Grouping parse_grouping(nanobind::handle value);
GroupBounds parse_bounds(nanobind::handle value);
Conv parse_conv(nanobind::handle value);
Division parse_division(nanobind::handle value);
KernelFamily parse_kernel(nanobind::handle value);
Precision parse_precision(nanobind::handle value);
Granularity parse_granularity(nanobind::handle value);
Major parse_scale_major(nanobind::handle value);

/// An integer of any class. `expected` says, in messages, what it must be.
int64_t parse_integer(nanobind::handle value, const char* name,
                      const char* expected = "an integer");

/// None gives 0, the planner's choice.
int32_t parse_split_k_slices(nanobind::handle value);

/// True or False; nothing that merely counts as one of them.
bool parse_flag(nanobind::handle value, const char* name);

/// A number, as float32.
float parse_scalar(nanobind::handle value, const char* name);

/// A name, a torch or NumPy dtype, or an object with a `name`: "float16", "float8_e4m3fn" and so
/// on, as cleave/names.h has them (also "f16", "e4m3" and so on). Throws Error(invalid_type) for
/// what is none of `allowed`.
DType parse_dtype(nanobind::handle value, const char* name,
                  std::span<const DType> allowed = kAnyType);

/// The name as a Python string that is made once.
nanobind::handle dtype_name(DType dtype);

}  // namespace cleave::python

// The dictionaries `__array_interface__` (NumPy) and `__cuda_array_interface__` (Numba, PyCUDA,
// CuPy).
#pragma once

#include "array/tensor.h"

namespace cleave::python {

/// A field, or None.
nanobind::object interface_field(nanobind::handle fields, const char* key);

/// Fills everything but the device. Throws Error naming `name` for fields that make no sense.
void assign_interface(nanobind::handle fields, nanobind::handle array, const char* name, TensorView& view);

/// The CUDA device that owns an address: the CUDA dictionary does not say.
int pointer_device(const void* pointer);

}  // namespace cleave::python

// torch's tensors, dtypes and streams, as the library sees them.
#pragma once

#include <optional>

#include "operands/operand.h"

#include "stable.h"

namespace cleave::torch_ops {

/// Borrows: valid as long as the tensor.
Operand read(const Tensor& tensor);
std::optional<Operand> read(const std::optional<Tensor>& tensor);

/// Throws Error(invalid_type), naming the argument, for a dtype without a DType.
DType dtype_of(ScalarType type, const char* name);
std::optional<DType> dtype_of(std::optional<ScalarType> type, const char* name);

/// A new, uninitialised tensor; sets `data` to its elements.
template <class T>
Tensor make(std::span<const int64_t> shape, DType dtype, int device, T*& data, bool by_column = false) {
  Tensor tensor = empty(shape, dtype, device, by_column);
  data = static_cast<T*>(tensor.data_ptr());
  return tensor;
}

}  // namespace cleave::torch_ops

// torch's tensors, dtypes and streams, as the library sees them.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <optional>

#include "operands/operand.h"

namespace cleave::torch_ops {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

/// Borrows: good as long as the tensor.
Operand read(const Tensor& tensor);
std::optional<Operand> read(const std::optional<Tensor>& tensor);

/// Throws Error(invalid_type), naming the argument, for a dtype without a DType.
DType dtype_of(ScalarType type, const char* name);
std::optional<DType> dtype_of(std::optional<ScalarType> type, const char* name);

/// A new tensor from torch's allocator (inside a graph capture: from the graph's pool). Packed row
/// by row, or, if it is a matrix and `by_column`, column by column.
Tensor empty(std::span<const int64_t> shape, DType dtype, int device, bool by_column = false);

/// The same of any strides, in elements.
Tensor empty_strided(std::span<const int64_t> shape, const int64_t* strides, DType dtype, int device);

/// The handle of torch's current stream; null on the CPU.
void* current_stream(int device);

}  // namespace cleave::torch_ops

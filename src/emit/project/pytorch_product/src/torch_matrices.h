// Tensors as products take them: matrices, vectors and scales.
#pragma once

#include "cleave/problem.h"
#include "torch_tensors.h"

namespace emitted::operation {

/// A matrix, or a batch of them.
struct Matrix {
  int64_t rows = 0, columns = 0, batch = 1;
  bool batched = false;  // has a dimension for its batch
};

/// Says in `layout` where it lies.
inline Matrix read_matrix(const Tensor& x, const char* name, cleave::Order order, int32_t device,
                          cleave::MatrixLayout& layout) {
  check_tensor(x, name, layout.dtype, device);
  const size_t rank = size_t(x.dim());
  if (rank != 2 && rank != 3) refuse(name, " is ", text(x.sizes()), "; it must be a matrix or a batch of matrices");
  const auto sizes = x.sizes(), strides = x.strides();
  const bool by_row = order == cleave::Order::row;
  const size_t along = by_row ? rank - 1 : rank - 2, across = by_row ? rank - 2 : rank - 1;
  if (sizes[along] > 1 && strides[along] != 1) {
    refuse("neighbours in ", by_row ? "rows" : "columns", " of ", name, " are ", strides[along],
           " elements apart; this operation takes a ", by_row ? "row" : "column", "-major ", name, ", as ", name,
           by_row ? ".contiguous()" : ".mT.contiguous().mT", " is");
  }
  Matrix matrix{sizes[rank - 2], sizes[rank - 1]};
  matrix.batched = rank == 3;
  if (matrix.batched) matrix.batch = sizes[0];
  layout.stride_row = by_row ? strides[across] : 1;
  layout.stride_col = by_row ? 1 : strides[across];
  layout.stride_batch = matrix.batch > 1 ? strides[0] : 0;
  return matrix;
}

/// The matrices of a batch, read before, as one matrix, row below row.
inline void stack(const Tensor& x, const char* name, cleave::MatrixLayout& layout) {
  const auto sizes = x.sizes(), strides = x.strides();
  if (sizes[0] > 1 && sizes[1] > 1 && strides[0] != sizes[1] * strides[1])
    refuse(name, " has gaps between its matrices, where ", name, ".contiguous() has none");
  if (sizes[0] > 1 && sizes[1] == 1) layout.stride_row = strides[0];
  layout.stride_batch = 0;
}

/// A vector of `length` values (or, where `one_serves`, a single one), or `batch` of them.
/// Dimensions of size 1 may stand anywhere. Strides are 0 where one value, or vector, serves all.
inline void* read_vector(const Tensor& x, const char* name, DType type, int64_t length, int64_t batch, bool one_serves,
                         int32_t device, int64_t& stride, int64_t& batch_stride) {
  check_tensor(x, name, type, device);
  stride = batch_stride = 0;
  int64_t i = x.dim();
  const auto next = [&] {  // the innermost dimension before i that has more than one element
    while (i > 0 && x.size(i - 1) == 1) --i;
    return i > 0 ? x.size(i - 1) : 1;
  };
  const bool fits = length == 1 || next() == length || one_serves;
  if (length > 1 && next() == length) stride = x.stride(--i);
  if (batch > 1 && next() == batch) batch_stride = x.stride(--i);
  if (!fits || next() != 1) {
    refuse(name, " is ", text(x.sizes()), "; it must hold ", length, " values", one_serves ? " or one" : "",
           batch > 1 ? ", for each of the batch or for all" : "");
  }
  return x.data_ptr();
}

/// The same of values side by side.
inline const void* read_packed(const Tensor& x, const char* name, DType type, int64_t length, int64_t batch,
                               int32_t device, int64_t& batch_stride) {
  int64_t stride = 0;
  const void* const data = read_vector(x, name, type, length, batch, false, device, stride, batch_stride);
  if (stride > 1) refuse("neighbours in ", name, " are ", stride, " elements apart; pass ", name, ".contiguous()");
  return data;
}

/// Scales of rows x columns blocks of a matrix, or of a batch of matrices, in any order in memory.
inline void* read_blocks(const Tensor& x, const char* name, int64_t rows, int64_t columns, int64_t batch,
                         int32_t device, int64_t& stride_row, int64_t& stride_column, int64_t& stride_batch) {
  check_tensor(x, name, DType::f32, device);
  const size_t rank = size_t(x.dim());
  const auto sizes = x.sizes(), strides = x.strides();
  const bool fits = (rank == 2 || (rank == 3 && (sizes[0] == batch || sizes[0] == 1))) && sizes[rank - 2] == rows &&
                    sizes[rank - 1] == columns;
  if (!fits) {
    refuse(name, " is ", text(sizes), "; it must be ", text(Shape{rows, columns}),
           batch > 1 ? " or a batch of those" : "");
  }
  stride_row = strides[rank - 2];
  stride_column = strides[rank - 1];
  stride_batch = rank == 3 && sizes[0] > 1 ? strides[0] : 0;
  return x.data_ptr();
}

}  // namespace emitted::operation

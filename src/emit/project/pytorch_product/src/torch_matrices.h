// Tensors as products take them: matrices, vectors and scales.
#pragma once

#include <algorithm>
#include <span>

#include "emitted/operation.h"

#include "torch_tensors.h"

namespace emitted::operation {

using cleave::Order;

/// A matrix, or a batch of them.
struct Matrix {
  void* data = nullptr;
  int64_t rows = 0, columns = 0, batch = 1;
  bool batched = false;       // has a dimension for its batch
  int64_t leading = kPacked;  // elements from one row (column) to the next
  int64_t batch_stride = 0;   // elements from one matrix to the next; 0 if one serves all
};

inline Matrix read_matrix(const Tensor& x, const char* name, const Element& element, Order order, int32_t device) {
  check_tensor(x, name, element, device);
  const int64_t rank = x.dim();
  if (rank != 2 && rank != 3) refuse(name, " is ", text(shape_of(x)), "; it must be a matrix or a batch of matrices");
  const auto sizes = x.sizes(), strides = x.strides();
  const bool by_row = order == Order::row;
  const int64_t along = by_row ? rank - 1 : rank - 2, across = by_row ? rank - 2 : rank - 1;
  if (sizes[along] > 1 && strides[along] != 1) {
    refuse("neighbours in ", by_row ? "rows" : "columns", " of ", name, " are ", strides[along],
           " elements apart; this operation takes a ", by_row ? "row" : "column", "-major ", name, ": pass ", name,
           by_row ? ".contiguous()" : ".mT.contiguous().mT");
  }
  Matrix matrix{x.data_ptr(), sizes[rank - 2], sizes[rank - 1]};
  matrix.batched = rank == 3;
  if (matrix.batched) matrix.batch = sizes[0];
  if (sizes[across] > 1) matrix.leading = strides[across];
  if (matrix.batch > 1) matrix.batch_stride = strides[0];
  return matrix;
}

/// The matrices of a batch as one matrix, row below row.
inline Matrix stacked(Matrix matrix, const Tensor& x, const char* name) {
  if (matrix.rows == 1 && matrix.batch > 1) matrix.leading = x.stride(0);
  if (matrix.rows > 1 && matrix.batch > 1 && x.stride(0) != matrix.rows * x.stride(1))
    refuse(name, " has gaps between its matrices; pass ", name, ".contiguous()");
  matrix.rows *= matrix.batch;
  matrix.batch = 1;
  matrix.batch_stride = 0;
  return matrix;
}

/// Values along one dimension, for each entry of a batch or for all of it.
struct Vector {
  void* data = nullptr;
  int64_t stride = 0;        // elements from one value to the next; 0 if one serves all
  int64_t batch_stride = 0;  // elements from one vector to the next; 0 if one serves all
};

/// A vector of `length` values (or, where `one_serves`, a single one), or `batch` of them.
/// Dimensions of size 1 may stand anywhere.
inline Vector read_vector(const Tensor& x, const char* name, const Element& element, int64_t length, int64_t batch,
                          bool one_serves, int32_t device) {
  check_tensor(x, name, element, device);
  Vector vector{x.data_ptr()};
  int64_t i = x.dim();
  const auto next = [&] {  // the innermost dimension before i that has more than one element
    while (i > 0 && x.size(i - 1) == 1) --i;
    return i > 0 ? x.size(i - 1) : 1;
  };
  bool fits = length == 1 || next() == length || one_serves;
  if (length > 1 && next() == length) vector.stride = x.stride(--i);
  if (batch > 1 && next() == batch) vector.batch_stride = x.stride(--i);
  fits = fits && next() == 1;
  if (!fits) {
    refuse(name, " is ", text(shape_of(x)), "; it must hold ", length, " values", one_serves ? " or one" : "",
           batch > 1 ? ", for each of the batch or for all" : "");
  }
  return vector;
}

/// Scales of the blocks of a matrix, or of a batch of matrices, in any order in memory.
struct Grid {
  const float* data = nullptr;
  int64_t stride_row = kPacked, stride_column = kPacked, batch_stride = 0;
};

inline Grid read_grid(const Tensor& x, const char* name, int64_t rows, int64_t columns, int64_t batch, int32_t device) {
  check_tensor(x, name, kFloat32, device);
  const int64_t rank = x.dim();
  const bool fits = (rank == 2 || (rank == 3 && (x.size(0) == batch || x.size(0) == 1))) && x.size(rank - 2) == rows &&
                    x.size(rank - 1) == columns;
  if (!fits) {
    refuse(name, " is ", text(shape_of(x)), "; it must be ", text({rows, columns}),
           batch > 1 ? " or a batch of those" : "");
  }
  Grid grid{static_cast<const float*>(x.data_ptr())};
  if (rows > 1) grid.stride_row = x.stride(rank - 2);
  if (columns > 1) grid.stride_column = x.stride(rank - 1);
  if (rank == 3 && x.size(0) > 1) grid.batch_stride = x.stride(0);
  return grid;
}

/// The same, refused if there is anything between its values.
inline const void* packed(const Vector& vector, const char* name) {
  if (vector.stride > 1) {
    refuse("neighbours in ", name, " are ", vector.stride, " elements apart; pass ", name, ".contiguous()");
  }
  return vector.data;
}

/// New matrices from PyTorch's allocator, packed in the given order.
inline Tensor new_matrix(std::span<const int64_t> shape, const Element& element, Order order, int32_t device) {
  int64_t strides[] = {1, 1, 1};
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<int64_t>(shape[i], 1);
  if (order == Order::column) {
    const size_t row = shape.size() - 2;
    strides[row] = 1;
    strides[row + 1] = std::max<int64_t>(shape[row], 1);
  }
  return new_tensor(shape, strides, element, device);
}

}  // namespace emitted::operation

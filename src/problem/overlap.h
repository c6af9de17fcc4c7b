// Whether matrices share elements: within one matrix, and between two.
#pragma once

#include "cleave/gemm.h"

namespace cleave {

/// A batch of matrices in memory. Strides are not negative, and one of row and column has unit
/// stride.
struct Placement {
  const MatrixLayout& layout;
  int64_t rows, columns, batch;

  bool empty() const { return rows == 0 || columns == 0 || batch == 0; }
};

/// True if two different indices reach the same element. Exact, in time logarithmic in the strides.
bool overlaps_itself(const Placement& matrix);

/// False if no byte belongs to both. True may be a false alarm, but not for matrices cut from one
/// buffer along rows, columns or the batch.
bool may_overlap(const Placement& x, const void* x_data, const Placement& y, const void* y_data);

}  // namespace cleave

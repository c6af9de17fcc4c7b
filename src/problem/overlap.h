// Whether matrices share elements: within one matrix, and between two.
#pragma once

#include "problem/placement.h"

namespace cleave {

// Strides are not negative.

/// True if two different indices reach the same element. Exact, in time logarithmic in the strides,
/// where one of row and column has unit stride or the batch is 1.
bool overlaps_itself(const Placement& matrix);

/// False if no byte belongs to both. True may be a false alarm, but not for matrices cut from one
/// buffer along rows, columns or the batch.
bool may_overlap(const Placement& x, const void* x_data, const Placement& y, const void* y_data);

}  // namespace cleave

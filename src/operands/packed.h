// Rules that operations other than products share: contiguous rows, contiguous arrays, integers of two widths.
#pragma once

#include "operands/operand.h"

namespace cleave {

/// The layout of a matrix; throws Error(invalid_argument) unless its rows are contiguous.
MatrixLayout row_major(const Operand& x, const char* name, bool written = false);

/// The number of elements; throws Error(invalid_argument) unless they lie side by side in the order
/// of their indices.
int64_t packed_count(const Operand& x, const char* name);

/// Throws Error unless `x`, of any shape, is int32 or int64, lies on `device` and has data.
void check_integers(const Operand& x, const char* name, int device, const char* leader);

}  // namespace cleave

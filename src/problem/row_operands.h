// Rules and checks of operations whose matrices have contiguous rows: all but products.
#pragma once

#include <span>

#include "problem/placement.h"
#include "problem/rules.h"

namespace cleave {

/// `count` contiguous elements.
Placement vector_of(DType type, int64_t count, uint32_t alignment);

/// `count` contiguous integers, int64 or int32, aligned as such. No DType is int64: of one, two
/// int32.
Placement integers_of(int64_t count, bool wide);

/// The rules of a matrix in a problem. `written`: it must not overlap itself.
void check_rows(const char* argument, const Placement& matrix, bool written, Messages& out);

/// What a launch reads or writes; nothing if its place is empty.
struct NamedOperand {
  const char* name;
  Placement place;
  const void* data;
  bool written;
};

/// Throws invalid_argument for a missing or misaligned pointer, and for something that is written
/// sharing elements with anything else.
void check_operands(std::span<const NamedOperand> operands);

}  // namespace cleave

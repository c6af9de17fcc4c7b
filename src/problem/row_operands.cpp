#include "problem/row_operands.h"

#include <fmt/format.h>

#include "problem/arguments.h"
#include "problem/overlap.h"

namespace cleave {

Placement vector_of(DType type, int64_t count, uint32_t alignment) {
  return {{.dtype = type, .stride_row = count, .alignment = alignment}, 1, count, 1};
}

Placement integers_of(int64_t count, bool wide) {
  return vector_of(DType::i32, wide ? 2 * count : count, wide ? sizeof(int64_t) : sizeof(int32_t));
}

void check_rows(const char* argument, const Placement& matrix, bool written, Messages& out) {
  if (!check_layout(argument, matrix, written, out)) return;
  if (matrix.columns > 1 && matrix.layout.stride_col != 1) {
    out.push_back(
        fmt::format("{0}.stride_col is {1}; it must be 1, so that rows are contiguous. Pass a "
                    "contiguous copy of {0}",
                    argument, matrix.layout.stride_col));
  } else if (written && overlaps_itself(matrix)) {
    out.push_back(
        fmt::format("{0} overlaps itself: its rows have {1} elements, but start {2} apart. Pass a "
                    "contiguous {0}",
                    argument, matrix.columns, matrix.layout.stride_row));
  }
}

void check_operands(std::span<const NamedOperand> operands) {
  for (size_t i = 0; i < operands.size(); ++i) {
    const NamedOperand& operand = operands[i];
    if (operand.place.empty()) continue;
    check_pointer(operand.name, operand.place.layout, operand.data);
    for (const NamedOperand& other : operands.first(i)) {
      if (!operand.written && !other.written) continue;
      if (!may_overlap(other.place, other.data, operand.place, operand.data)) continue;
      const char* const written = other.written ? other.name : operand.name;
      const char* const kept = other.written ? operand.name : other.name;
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{0} overlaps {1} in memory; pass {0} of its own or a copy of {1}", written, kept));
    }
  }
}

}  // namespace cleave

#include "over_ranks/rows.h"

namespace cleave {

Operand rows_of(Operand x, int64_t first, int64_t count) {
  x.data = static_cast<char*>(x.data) + first * x.stride[0] * int64_t(size_of(x.dtype));
  x.shape[0] = count;
  return x;
}

std::optional<Operand> rows_of(const std::optional<Operand>& scales, int64_t rows, int64_t first, int64_t count) {
  if (!scales || scales->ndim == 0 || scales->shape[0] != rows) return scales;
  return rows_of(*scales, first, count);
}

}  // namespace cleave

#include "operands/packed.h"

#include "base/refuse.h"
#include "cleave/core/saturate.h"

namespace cleave {

MatrixLayout row_major(const Operand& x, const char* name) {
  const MatrixLayout layout = layout_of(x, name);
  if (x.columns() > 1 && layout.stride_col != 1) {
    refuse_value(
        "{0} has strides ({1}, {2}); its rows must be contiguous. Pass a copy: {0}.contiguous() in torch, "
        "numpy.ascontiguousarray({0})",
        name, x.stride[0], x.stride[1]);
  }
  return layout;
}

int64_t packed_count(const Operand& x, const char* name) {
  int64_t count = 1;
  for (int i = x.ndim - 1; i >= 0; --i) {
    if (!x.empty() && x.shape[i] != 1 && x.stride[i] != count) {
      refuse_value("{0} is not contiguous; pass a copy: {0}.contiguous() in torch, numpy.ascontiguousarray({0})", name);
    }
    count = saturating_product(count, x.shape[i]);
  }
  return count;
}

void check_integers(const Operand& x, const char* name, int device, const char* leader) {
  if (!x.int64 && !x.is_one_of(kInt32)) {
    refuse_type("{} is {}; it must be int32 or int64, convert it", name, x.type_name());
  }
  check_place(x, name, device, leader);
}

}  // namespace cleave

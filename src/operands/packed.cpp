#include "operands/packed.h"

#include "base/refuse.h"
#include "cleave/core/saturate.h"

namespace cleave {

MatrixLayout row_major(const Operand& x, const char* name, bool written) {
  const MatrixLayout layout = layout_of(x, name, written);
  if (x.columns() > 1 && layout.stride_col != 1) {
    refuse_value("{} has strides ({}, {}); its rows must be contiguous. {}", name, x.stride[0], x.stride[1],
                 contiguous_remedy(name, written));
  }
  return layout;
}

int64_t packed_count(const Operand& x, const char* name) {
  int64_t count = 1;
  for (int i = x.ndim - 1; i >= 0; --i) {
    if (!x.empty() && x.shape[i] != 1 && x.stride[i] != count) {
      refuse_value("{} is not contiguous. {}", name, contiguous_remedy(name, false));
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

// Where the columns of B lie that a gate joins.
#pragma once

#include "cleave/core/macros.h"

namespace cleave {

/// Column j of D is made of column `of(j)` of B, the gate's, and `of(j, 1)`, the up's; without gates of column j.
/// Whatever goes with B's columns, a bias say, lies as they do.
struct GateColumns {
  uint32_t step = 1;  // from a gate to the next one
  uint32_t up = 0;    // from a gate to its up

  CLEAVE_HD constexpr uint32_t of(uint32_t column, uint32_t is_up = 0) const { return column * step + is_up * up; }
};

}  // namespace cleave

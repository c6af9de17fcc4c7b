// Registers of four neighbouring threads, which hold what a row of a fragment has in columns of their own, exchanged.
#pragma once

#include "cleave/core/macros.h"

namespace cleave {

/// Between the four threads with the same lane / 4: afterwards v[i] of thread j is what v[j] of thread i was.
CLEAVE_DEVICE void transpose_in_quad(uint32_t (&v)[4]) {
  CLEAVE_UNROLL
  for (uint32_t way = 1; way < 4; way *= 2) {
    const bool upper = threadIdx.x & way;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      if (i & way) continue;
      const uint32_t given = __shfl_xor_sync(0xffffffffu, upper ? v[i] : v[i + way], way);
      (upper ? v[i] : v[i + way]) = given;
    }
  }
}

}  // namespace cleave

// stmatrix (sm_90): four 8 x 8 matrices of 16-bit elements from a warp's registers to shared
// memory.
#pragma once

#include "cleave/core/macros.h"

namespace cleave::ptx {

/// Lane l gives the address of row l % 8 of matrix l / 8. With Transpose, memory rows are the
/// matrices' columns.
template <bool Transpose>
CLEAVE_DEVICE void stmatrix(uint32_t address, const uint32_t (&v)[4]) {
  if constexpr (Transpose) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v[0]),
                 "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
  } else {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v[0]),
                 "r"(v[1]), "r"(v[2]), "r"(v[3])
                 : "memory");
  }
}

}  // namespace cleave::ptx

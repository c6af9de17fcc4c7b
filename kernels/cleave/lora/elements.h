// Neighbouring 16-bit elements in a lane's registers.
#pragma once

#include "cleave/core/element.h"
#include "cleave/core/math.h"
#include "cleave/ptx/load_global.h"

namespace cleave {

/// How many elements a line has from `at` on, which ends at `end`; none of a line that does not exist.
CLEAVE_DEVICE uint32_t elements_left(uint32_t at, uint32_t end, bool exists = true) {
  return exists && at < end ? end - at : 0;
}

/// `Words` pairs; zeros where fewer elements are `left`. Vectors: all of them are, or none, and they lie at a multiple
/// of their size.
template <bool Vectors, uint32_t Words>
CLEAVE_DEVICE void load_elements(uint32_t (&to)[Words], const uint16_t* from, uint32_t left) {
  if constexpr (Vectors) {
    ptx::load_global_if<4 * Words>(to, from, left != 0);
  } else {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Words; ++i) {
      uint32_t high;
      ptx::load_global_if<2>(&to[i], from + 2 * i, left > 2 * i);
      ptx::load_global_if<2>(&high, from + 2 * i + 1, left > 2 * i + 1);
      to[i] |= high << 16;
    }
  }
}

template <bool Vectors>
CLEAVE_DEVICE void store_elements(uint16_t* to, const uint32_t (&from)[4], uint32_t left) {
  if constexpr (Vectors) {
    if (left != 0) *reinterpret_cast<uint4*>(to) = make_uint4(from[0], from[1], from[2], from[3]);
  } else {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < 8; ++i)
      if (i < left) to[i] = uint16_t(from[i / 2] >> i % 2 * 16);
  }
}

}  // namespace cleave

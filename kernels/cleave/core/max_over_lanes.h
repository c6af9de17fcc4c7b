// The largest of an integer among neighbouring lanes; all of them get it.
#pragma once

#include "cleave/core/math.h"

namespace cleave {

/// Among aligned groups of `Lanes` threads of a warp. All of the warp take part.
template <uint32_t Lanes>
CLEAVE_DEVICE int32_t max_over_lanes(int32_t value) {
  if constexpr (Lanes == 32) {
    return __reduce_max_sync(0xffffffffu, value);
  } else {
    CLEAVE_UNROLL
    for (uint32_t distance = Lanes / 2; distance > 0; distance /= 2)
      value = max_of(value, __shfl_xor_sync(0xffffffffu, value, distance));
    return value;
  }
}

}  // namespace cleave

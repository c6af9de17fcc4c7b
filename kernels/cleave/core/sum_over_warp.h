#pragma once

#include "cleave/core/macros.h"

namespace cleave {

/// The sum over the warp, in the same order in every lane.
CLEAVE_DEVICE float sum_over_warp(float value) {
  CLEAVE_UNROLL
  for (uint32_t distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

}  // namespace cleave

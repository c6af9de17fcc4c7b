// Two neighbours in memory at once.
#pragma once

#include "cleave/core/element.h"

namespace cleave {

/// `type` is a constant; `at` is aligned to both elements.
CLEAVE_DEVICE void store_pair(DType type, void* at, float first, float second) {
  if (type == DType::f32) {
    *static_cast<float2*>(at) = make_float2(first, second);
  } else if (size_of(type) == 2) {
    *static_cast<uint32_t*>(at) = pack_pair(type, first, second);
  } else {
    *static_cast<uint16_t*>(at) = uint16_t(element_bits(type, first) | element_bits(type, second) << 8);
  }
}

CLEAVE_DEVICE void store_pair(DType, void* at, int32_t first, int32_t second) {
  *static_cast<int2*>(at) = make_int2(first, second);
}

}  // namespace cleave

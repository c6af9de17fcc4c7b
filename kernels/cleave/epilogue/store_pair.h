// Two neighbours at once.
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

/// The same where the second may not exist, and only the elements are aligned. `adjacent`: in memory, too; else they
/// are `stride` elements apart.
template <bool adjacent, class T>
CLEAVE_DEVICE void store_two(DType type, char* at, int64_t stride, T first, T second, bool both) {
  const uint32_t size = size_of(type);
  if (adjacent && both && (reinterpret_cast<uint64_t>(at) & (2 * size - 1)) == 0) {
    store_pair(type, at, first, second);
    return;
  }
  const int64_t next = adjacent ? 1 : stride;
  if (size == 2) {  // one instruction converts both
    const uint32_t pair = pack_pair(type, first, second);
    uint16_t* const to = reinterpret_cast<uint16_t*>(at);
    to[0] = uint16_t(pair);
    if (both) to[next] = uint16_t(pair >> 16);
    return;
  }
  store_element(type, at, 0, first);
  if (both) store_element(type, at, next, second);
}

}  // namespace cleave

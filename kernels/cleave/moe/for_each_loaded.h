#pragma once

#include "cleave/core/macros.h"

namespace cleave {

/// Calls use(i, load(i)) for begin, begin + stride and so on, below `end`, with some loads under way
/// together.
template <class Load, class Use>
CLEAVE_DEVICE void for_each_loaded(uint32_t begin, uint32_t end, uint32_t stride, const Load& load, const Use& use) {
  constexpr uint32_t kInFlight = 8;
  for (uint32_t first = begin; first < end; first += kInFlight * stride) {
    uint32_t values[kInFlight];
    CLEAVE_UNROLL
    for (uint32_t j = 0; j < kInFlight; ++j) {
      const uint32_t i = first + j * stride;
      if (i < end) values[j] = load(i);
    }
    CLEAVE_UNROLL
    for (uint32_t j = 0; j < kInFlight; ++j) {
      const uint32_t i = first + j * stride;
      if (i < end) use(i, values[j]);
    }
  }
}

}  // namespace cleave

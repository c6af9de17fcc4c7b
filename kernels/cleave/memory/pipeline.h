// A ring of shared-memory stages between a producer and consumers: which stage is next, and the
// parity its barriers have on this lap. Producer and consumers each keep one and advance it once
// per k block.
#pragma once

#include "cleave/core/macros.h"

namespace cleave {

template <uint32_t Stages>
struct PipelineState {
  uint32_t stage = 0;
  uint32_t parity = 0;

  CLEAVE_HD constexpr void advance() {
    if (++stage == Stages) {
      stage = 0;
      parity ^= 1;
    }
  }

  /// Skips `count` k blocks that somebody else consumes.
  CLEAVE_HD constexpr void advance(uint32_t count) {
    stage += count;
    parity ^= stage / Stages & 1;
    stage %= Stages;
  }
};

}  // namespace cleave

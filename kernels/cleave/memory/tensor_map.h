// The driver's CUtensorMap, opaque: how TMA sees a tensor.
#pragma once

#include "cleave/core/macros.h"

namespace cleave {

struct alignas(128) TensorMap {
  uint64_t words[16];
};

}  // namespace cleave

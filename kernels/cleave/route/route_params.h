// The argument of the kernel of route/, filled by the host for each launch and passed as a __grid_constant__.
#pragma once

#include "cleave/core/macros.h"

namespace cleave {

struct RouteParams {
  uint32_t tokens = 0;
  uint32_t experts = 1;
  uint32_t top_k = 1;
  uint32_t groups = 1, group_size = 1, kept_groups = 1;
  float routed_scaling_factor = 1.0f;
  const void* logits = nullptr;
  int64_t logits_stride = 0;    // from token to token, in elements
  const float* bias = nullptr;  // [experts]
  int32_t* ids = nullptr;       // [tokens, top_k]
  float* weights = nullptr;     // [tokens, top_k]
};

}  // namespace cleave

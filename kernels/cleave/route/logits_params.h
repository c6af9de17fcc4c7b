// The argument of the kernel of router's logits, filled by the host for each launch and passed as a __grid_constant__.
#pragma once

#include "cleave/core/fast_divmod.h"

namespace cleave {

struct LogitsParams {
  uint32_t tokens = 0;
  uint32_t experts = 1;
  uint32_t features = 0;
  uint32_t part_features = 0;  // of each of kLogitsWarps parts
  FastDivmod expert_ctas;      // CTAs of the same tokens, which follow each other
  const void* x = nullptr;
  int64_t x_stride = 0;  // from token to token, in elements
  const void* weight = nullptr;
  int64_t weight_stride = 0;  // from expert to expert
  float* logits = nullptr;    // [tokens, experts]
};

}  // namespace cleave

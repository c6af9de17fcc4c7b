// The argument of the kernel of low-rank adapters, filled by the host for each launch and passed as a
// __grid_constant__.
#pragma once

#include "cleave/schedule/groups.h"

namespace cleave {

/// Strides are in elements.
struct LoraParams {
  GroupParams adapters;  // the rows of each
  uint32_t rank = 0, features = 0, outputs = 0;
  uint32_t cta_features = 0, cta_outputs = 0;  // of each CTA of a cluster, whole strips
  const void* x = nullptr;
  int64_t x_stride = 0;
  const void* a = nullptr;
  int64_t a_stride = 0, a_adapter_stride = 0;
  const void* b = nullptr;
  int64_t b_stride = 0, b_adapter_stride = 0;
  void* out = nullptr;
  int64_t out_stride = 0;
  float scale = 1.0f;
};

}  // namespace cleave

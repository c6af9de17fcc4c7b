// The one argument of every GEMM kernel, filled by the host for each launch and passed as a
// __grid_constant__.
#pragma once

#include "cleave/epilogue/epilogue.h"
#include "cleave/schedule/schedule.h"

namespace cleave {

/// The driver's CUtensorMap, opaque.
struct alignas(128) TensorMap {
  uint64_t words[16];
};

/// An operand as the portable kernel reads it; TMA kernels read the same facts from their tensor
/// maps.
struct OperandParams {
  const void* data = nullptr;
  int64_t stride = 0;        // elements, of the dimension that is not contiguous
  int64_t batch_stride = 0;  // elements; 0 broadcasts
};

/// Scales of blocks of an operand. Strides count elements.
struct BlockScales {
  const float* data = nullptr;
  int64_t stride_row = 0;  // to the next row's scale, or the next 128 rows'
  int64_t stride_k = 0;    // to the next k block's
  int64_t stride_batch = 0;
};

struct GemmParams {
  TensorMap map_a, map_b, map_d;  // sm90
  OperandParams a, b;             // portable
  uint32_t k = 0;  // portable: elements of K; m and n are in the epilogue's parameters
  BlockScales scales_a, scales_b;         // Scaling::block
  uint32_t batched_a = 0, batched_b = 0;  // sm90: 0 where the batch broadcasts, else 1
  Schedule schedule;
  GroupParams groups;
  EpilogueParams epilogue;
  float* partials = nullptr;     // float32 shares of tiles, in fragment order
  uint32_t* counters = nullptr;  // one per tile (stream_k: per worker); zero between launches
};

}  // namespace cleave

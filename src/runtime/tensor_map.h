// Tensor maps: how the TMA unit sees a matrix in memory.
#pragma once

#include <cuda.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "cleave/core/enums.h"

namespace cleave {

/// Up to four dimensions, the contiguous one first. Boxes lie in shared memory as rows of 128,
/// 64 or 32 bytes with the swizzle of that width (memory/swizzle.h); what lies outside the matrix
/// reads as zero and is not written.
struct TensorMapShape {
  static constexpr uint32_t max_rank = 4;

  const char* name = "matrix";  ///< in messages
  DType dtype = DType::bf16;
  bool round_to_tf32 =
      false;  ///< f32: loads round to nearest instead of leaving it to the tensor core to truncate
  uint32_t rank = 2;
  std::array<uint64_t, max_rank> size = {1, 1, 1, 1};
  std::array<uint64_t, max_rank> stride_bytes = {
      0, 0, 0, 0};  ///< [0] is not used: the first dimension is contiguous
  std::array<uint32_t, max_rank> box = {1, 1, 1, 1};  ///< elements
};

/// Throws Error(unsupported), naming the dimension, for what TMA cannot address; the portable
/// kernel can.
CUtensorMap make_tensor_map(const void* base, const TensorMapShape& shape);

/// Points a map at another matrix of the same shape. Throws Error(unsupported) if `base` is not
/// 16-byte aligned.
void replace_address(CUtensorMap& map, const void* base);

}  // namespace cleave

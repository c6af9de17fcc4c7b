// What a tensor map says, as the driver takes it: how TMA sees a matrix or a tensor of
// images in memory.
#pragma once

#include <array>
#include <cstdint>

#include "cleave/core/enums.h"

namespace cleave {

/// Up to four dimensions, the contiguous one first. Boxes lie in shared memory as rows of 128,
/// 64 or 32 bytes with the swizzle of that width (memory/swizzle.h), or, unless swizzled, as rows of any number of 16
/// bytes; what lies outside the matrix reads as zero and is not written.
struct TensorMapShape {
  static constexpr uint32_t max_rank = 4;

  const char* name = "matrix";  ///< in messages
  DType dtype = DType::bf16;
  bool round_to_tf32 = false;  ///< f32: loads round to nearest instead of leaving it to the tensor core to truncate
  bool swizzled = true;
  uint32_t rank = 2;
  std::array<uint64_t, max_rank> size = {1, 1, 1, 1};
  std::array<uint64_t, max_rank> stride_bytes = {0, 0, 0, 0};  ///< [0] is not used: the first dimension is contiguous
  std::array<uint32_t, max_rank> box = {1, 1, 1, 1};           ///< elements
};

/// A tensor of images as a convolution walks through it (ptx/tma_im2col.h): dimensions channels,
/// width, height (, depth), images, the first one contiguous. Boxes lie in shared memory as those of
/// matrices.
struct Im2colMapShape {
  static constexpr uint32_t max_rank = 5;

  const char* name = "tensor";  ///< in messages
  DType dtype = DType::bf16;
  bool round_to_tf32 = false;
  uint32_t rank = 4;
  std::array<uint64_t, max_rank> size = {1, 1, 1, 1, 1};
  std::array<uint64_t, max_rank> stride_bytes = {};  ///< [0] is not used
  /// For width, height, depth: the first pixel, the last one less the dimension's last, the way from
  /// one to the next.
  std::array<int32_t, 3> lower = {}, upper = {};
  std::array<uint32_t, 3> step = {1, 1, 1};
  uint32_t box_channels = 1, box_pixels = 1;
};

}  // namespace cleave

// The driver's calls that make tensor maps. `encode` is the call itself, or a pointer to it.
#pragma once

#include <cuda.h>

#include "launch/map_shapes.h"

namespace cleave {
namespace detail {

/// DTypeInfo, which kernels and public headers have, knows nothing of <cuda.h>.
inline CUtensorMapDataType map_type(DType dtype, bool round_to_tf32) {
  if (size_of(dtype) == 1) return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  if (dtype == DType::f16) return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  if (dtype == DType::bf16) return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  if (dtype == DType::i32) return CU_TENSOR_MAP_DATA_TYPE_INT32;
  return round_to_tf32 ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

/// The swizzle whose span is a row of the box: 32, 64 or 128 bytes.
inline CUtensorMapSwizzle map_swizzle(uint32_t row_bytes) {
  return row_bytes == 32   ? CU_TENSOR_MAP_SWIZZLE_32B
         : row_bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                           : CU_TENSOR_MAP_SWIZZLE_128B;
}

/// A miss brings one line of 128 bytes into L2. Two would be asked for again by the next k block, in lines that memory
/// has already been asked for: on an H200 that costs what memory bounds 3 to 9 % (docs/notes/2026-11-choice.md).
inline constexpr CUtensorMapL2promotion l2_promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;

}  // namespace detail

template <class Encode>
CUresult encode_tiled(const Encode& encode, CUtensorMap& map, const void* data, const TensorMapShape& s) {
  constexpr std::array<cuuint32_t, TensorMapShape::max_rank> steps = {1, 1, 1, 1};
  return encode(&map, detail::map_type(s.dtype, s.round_to_tf32), s.rank, const_cast<void*>(data), s.size.data(),
                s.stride_bytes.data() + 1, s.box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
                s.swizzled ? detail::map_swizzle(s.box[0] * size_of(s.dtype)) : CU_TENSOR_MAP_SWIZZLE_NONE,
                detail::l2_promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

template <class Encode>
CUresult encode_im2col(const Encode& encode, CUtensorMap& map, const void* data, const Im2colMapShape& s) {
  const std::array<cuuint32_t, Im2colMapShape::max_rank> steps = {1, s.step[0], s.step[1], s.rank == 5 ? s.step[2] : 1,
                                                                  1};
  return encode(&map, detail::map_type(s.dtype, s.round_to_tf32), s.rank, const_cast<void*>(data), s.size.data(),
                s.stride_bytes.data() + 1, s.lower.data(), s.upper.data(), s.box_channels, s.box_pixels, steps.data(),
                CU_TENSOR_MAP_INTERLEAVE_NONE, detail::map_swizzle(s.box_channels * size_of(s.dtype)),
                detail::l2_promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}  // namespace cleave

#include "runtime/tensor_map.h"

#include <fmt/format.h>

#include "cleave/error.h"
#include "runtime/driver.h"

namespace cleave {
namespace {

constexpr uint64_t alignment = 16;
constexpr uint64_t max_size = uint64_t(1) << 32;
constexpr uint64_t max_stride_bytes = uint64_t(1) << 40;
constexpr uint32_t max_box = 256;
constexpr uint32_t max_box_pixels = 1024;

template <class... Values>
[[noreturn]] void refuse(fmt::format_string<Values...> format, Values&&... values) {
  throw Error(ErrorCode::unsupported, fmt::format(format, std::forward<Values>(values)...));
}

void check_base(const void* base, const char* name) {
  const auto misalignment = reinterpret_cast<uintptr_t>(base) % alignment;
  if (misalignment == 0) return;
  refuse(
      "{} starts {} bytes past a multiple of {}; TMA needs an aligned matrix. Use "
      "kernel=\"portable\".",
      name, misalignment, alignment);
}

void check_box(const char* name, uint32_t dimension, uint32_t elements, uint32_t most) {
  if (elements >= 1 && elements <= most) return;
  refuse("{}.box[{}] is {}; TMA needs 1 to {}.", name, dimension, elements, most);
}

template <class Shape>
void check_dimensions(const Shape& s) {
  if (s.rank < 1 || s.rank > Shape::max_rank) {
    refuse("{} has rank {}; a tensor map has 1 to {} dimensions.", s.name, s.rank, Shape::max_rank);
  }
  for (uint32_t i = 0; i < s.rank; ++i) {
    if (s.size[i] < 1 || s.size[i] > max_size) {
      refuse("{}.size[{}] is {}; TMA needs 1 to 2^32. Use kernel=\"portable\".", s.name, i,
             s.size[i]);
    }
    const uint64_t stride = i == 0 ? 0 : s.stride_bytes[i];
    if (stride % alignment != 0 || stride >= max_stride_bytes) {
      refuse(
          "{}.stride[{}] is {} bytes; TMA needs a multiple of {} below 2^40. Pass a matrix with "
          "padded rows, or use "
          "kernel=\"portable\".",
          s.name, i, stride, alignment);
    }
  }
}

/// The swizzle whose span is a row of the box, of `elements`.
CUtensorMapSwizzle swizzle(const char* name, DType dtype, uint32_t elements) {
  const uint32_t row_bytes = elements * size_of(dtype);
  switch (row_bytes) {
    case 32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    case 64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case 128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
  }
  refuse("{}.box[0] is {} bytes; swizzles have rows of 32, 64 or 128.", name, row_bytes);
}

CUtensorMapDataType data_type(DType dtype, bool round_to_tf32) {
  switch (dtype) {
    case DType::f16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::bf16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DType::i8:
    case DType::e4m3:
    case DType::e5m2:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    case DType::i32:
      return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case DType::f32:
      break;
  }
  return round_to_tf32 ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
}

}  // namespace

CUtensorMap make_tensor_map(const void* base, const TensorMapShape& shape) {
  check_base(base, shape.name);
  check_dimensions(shape);
  for (uint32_t i = 0; i < shape.rank; ++i) check_box(shape.name, i, shape.box[i], max_box);
  const CUtensorMapSwizzle swizzling = swizzle(shape.name, shape.dtype, shape.box[0]);
  const std::array<cuuint32_t, TensorMapShape::max_rank> element_strides = {1, 1, 1, 1};
  CUtensorMap map;
  check(driver().tensor_map_encode_tiled(
            &map, data_type(shape.dtype, shape.round_to_tf32), shape.rank, const_cast<void*>(base),
            shape.size.data(), shape.stride_bytes.data() + 1, shape.box.data(),
            element_strides.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, swizzling,
            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
        "cuTensorMapEncodeTiled");
  return map;
}

CUtensorMap make_tensor_map(const void* base, const Im2colMapShape& shape) {
  check_base(base, shape.name);
  check_dimensions(shape);
  check_box(shape.name, 0, shape.box_channels, max_box);
  check_box(shape.name, 1, shape.box_pixels, max_box_pixels);
  const CUtensorMapSwizzle swizzling = swizzle(shape.name, shape.dtype, shape.box_channels);
  const std::array<cuuint32_t, Im2colMapShape::max_rank> steps = {
      1, shape.step[0], shape.step[1], shape.rank == 5 ? shape.step[2] : 1, 1};
  CUtensorMap map;
  check(
      driver().tensor_map_encode_im2col(
          &map, data_type(shape.dtype, shape.round_to_tf32), shape.rank, const_cast<void*>(base),
          shape.size.data(), shape.stride_bytes.data() + 1, shape.lower.data(), shape.upper.data(),
          shape.box_channels, shape.box_pixels, steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE,
          swizzling, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
      "cuTensorMapEncodeIm2col");
  return map;
}

void replace_address(CUtensorMap& map, const void* base) {
  check_base(base, "matrix");
  check(driver().tensor_map_replace_address(&map, const_cast<void*>(base)),
        "cuTensorMapReplaceAddress");
}

}  // namespace cleave

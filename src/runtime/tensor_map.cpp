#include "runtime/tensor_map.h"

#include "base/refuse.h"
#include "launch/encode_map.h"
#include "runtime/driver.h"

namespace cleave {
namespace {

constexpr uint64_t alignment = 16;
constexpr uint64_t max_size = uint64_t(1) << 32;
constexpr uint64_t max_stride_bytes = uint64_t(1) << 40;
constexpr uint32_t max_box = 256;
constexpr uint32_t max_box_pixels = 1024;

static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) && alignof(TensorMap) >= alignof(CUtensorMap));

CUtensorMap& driver_map(TensorMap& map) {
  return reinterpret_cast<CUtensorMap&>(map);
}

void check_base(const void* base, const char* name) {
  const auto misalignment = reinterpret_cast<uintptr_t>(base) % alignment;
  if (misalignment == 0) return;
  refuse(ErrorCode::unsupported,
         "{} starts {} bytes past a multiple of {}; TMA needs an aligned matrix. Use kernel=\"portable\".", name,
         misalignment, alignment);
}

void check_box(const char* name, uint32_t dimension, uint32_t elements, uint32_t most) {
  if (elements >= 1 && elements <= most) return;
  refuse(ErrorCode::unsupported, "{}.box[{}] is {}; TMA needs 1 to {}.", name, dimension, elements, most);
}

template <class Shape>
void check_dimensions(const Shape& s) {
  if (s.rank < 1 || s.rank > Shape::max_rank) {
    refuse(ErrorCode::unsupported, "{} has rank {}; a tensor map has 1 to {} dimensions.", s.name, s.rank,
           Shape::max_rank);
  }
  for (uint32_t i = 0; i < s.rank; ++i) {
    if (s.size[i] < 1 || s.size[i] > max_size) {
      refuse(ErrorCode::unsupported, "{}.size[{}] is {}; TMA needs 1 to 2^32. Use kernel=\"portable\".", s.name, i,
             s.size[i]);
    }
    const uint64_t stride = i == 0 ? 0 : s.stride_bytes[i];
    if (stride % alignment != 0 || stride >= max_stride_bytes) {
      refuse(ErrorCode::unsupported,
             "{}.stride[{}] is {} bytes; TMA needs a multiple of {} below 2^40. Pass a matrix with padded rows, or use "
             "kernel=\"portable\".",
             s.name, i, stride, alignment);
    }
  }
}

/// Swizzles have rows of 32, 64 or 128 bytes; others have any number of 16.
void check_row(const char* name, DType dtype, uint32_t elements, bool swizzled = true) {
  const uint32_t bytes = elements * size_of(dtype);
  if (!swizzled) {
    if (bytes % alignment == 0) return;
    refuse(ErrorCode::unsupported, "{}.box[0] is {} bytes; TMA needs a multiple of {}.", name, bytes, alignment);
  }
  if (bytes == 32 || bytes == 64 || bytes == 128) return;
  refuse(ErrorCode::unsupported, "{}.box[0] is {} bytes; swizzles have rows of 32, 64 or 128.", name, bytes);
}

}  // namespace

TensorMap make_tensor_map(const void* base, const TensorMapShape& shape) {
  check_base(base, shape.name);
  check_dimensions(shape);
  for (uint32_t i = 0; i < shape.rank; ++i) check_box(shape.name, i, shape.box[i], max_box);
  check_row(shape.name, shape.dtype, shape.box[0], shape.swizzled);
  TensorMap map;
  check(encode_tiled(driver().tensor_map_encode_tiled, driver_map(map), base, shape), "cuTensorMapEncodeTiled");
  return map;
}

TensorMap make_tensor_map(const void* base, const Im2colMapShape& shape) {
  check_base(base, shape.name);
  check_dimensions(shape);
  check_box(shape.name, 0, shape.box_channels, max_box);
  check_box(shape.name, 1, shape.box_pixels, max_box_pixels);
  check_row(shape.name, shape.dtype, shape.box_channels);
  TensorMap map;
  check(encode_im2col(driver().tensor_map_encode_im2col, driver_map(map), base, shape), "cuTensorMapEncodeIm2col");
  return map;
}

void replace_address(TensorMap& map, const void* base) {
  check_base(base, "matrix");
  check(driver().tensor_map_replace_address(&driver_map(map), const_cast<void*>(base)), "cuTensorMapReplaceAddress");
}

}  // namespace cleave

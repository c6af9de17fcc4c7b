// Tensors as convolutions take them: images, filters and values for channels.
#pragma once

#include <algorithm>
#include <array>
#include <string>

#include "emitted/operation.h"

#include "config.h"
#include "launch/conv_grid.h"
#include "torch_tensors.h"

namespace emitted::operation {

using cleave::ConvAxis;

constexpr bool kDeep = kOperation.conv.axes[0] != ConvAxis{};
inline constexpr size_t kAxes = kDeep ? 3 : 2;
inline constexpr const ConvAxis* kEveryAxis = kOperation.conv.axes + (3 - kAxes);
inline constexpr const char* kOrder = kDeep ? "torch.channels_last_3d" : "torch.channels_last";

/// A shape of images or filters.
using Extents = std::array<int64_t, kAxes + 2>;

inline std::string text(const Extents& extents) {
  return text(Shape(extents.begin(), extents.end()));
}

[[noreturn]] inline void refuse_order(const Tensor& x, const char* name) {
  const auto strides = x.strides();
  refuse(name, " is ", text(shape_of(x)), " with strides ", text({strides.begin(), strides.end()}),
         "; channels must be neighbours in memory: pass ", name, ".contiguous(memory_format=", kOrder, ")");
}

/// Elements from pixel to pixel of a tensor [n, channels, ...] whose channels are neighbours and
/// whose pixels are at one distance; kPacked if there is one pixel.
inline int64_t pixel_stride(const Tensor& x, const char* name) {
  const auto sizes = x.sizes(), strides = x.strides();
  if (sizes[1] > 1 && strides[1] != 1) refuse_order(x, name);
  int64_t first = kPacked, next = kPacked;
  const auto follow = [&](size_t dimension) {
    const int64_t size = sizes[dimension], stride = strides[dimension];
    if (size == 1) return;
    if (next == kPacked ? stride < sizes[1] : stride != next) refuse_order(x, name);
    if (first == kPacked) first = stride;
    next = stride * size;
  };
  for (size_t i = kAxes; i-- > 0;) follow(2 + i);
  follow(0);
  return first;
}

/// Images: [n, channels, ...], of any size.
struct Images {
  void* data = nullptr;
  int64_t stride = kPacked;  // from pixel to pixel
};

inline Images read_images(const Tensor& x, const char* name, const Element& element, int64_t channels, int32_t device) {
  check_tensor(x, name, element, device);
  if (x.dim() != int64_t(kAxes) + 2 || x.size(1) != channels) {
    refuse(name, " is ", text(shape_of(x)), "; it must have ", kAxes + 2, " dimensions and ", channels, " channels");
  }
  return {x.data_ptr(), x.numel() == 0 ? kPacked : pixel_stride(x, name)};
}

inline Extents filters_shape() {
  Extents shape{kFilters, kChannels / kGroups};
  for (size_t i = 0; i < kAxes; ++i) shape[2 + i] = kEveryAxis[i].filter;
  return shape;
}

inline void* read_filters(const Tensor& x, const char* name, const Element& element, int32_t device) {
  check_tensor(x, name, element, device);
  if (!has_shape(x, filters_shape())) refuse(name, " is ", text(shape_of(x)), "; it must be ", text(filters_shape()));
  const int64_t stride = pixel_stride(x, name);
  if (stride != kPacked && stride != x.size(1)) refuse_order(x, name);
  return x.data_ptr();
}

inline const void* read_bias(const Tensor& x, const Element& element, int64_t channels, int32_t device) {
  check_tensor(x, "bias", element, device);
  if (x.dim() != 1 || x.size(0) != channels || (channels > 1 && x.stride(0) != 1))
    refuse("bias is ", text(shape_of(x)), "; it must be ", text(Shape{channels}), ", without gaps");
  return x.data_ptr();
}

/// The shape of Y for images of the shape of X.
inline Extents outputs_shape(const Extents& images) {
  Extents shape{images[0], kFilters};
  for (size_t i = 0; i < kAxes; ++i) {
    const ConvAxis& axis = kEveryAxis[i];
    shape[2 + i] = cleave::conv_outputs(images[2 + i], int64_t(axis.pad_begin) + axis.pad_end, axis.filter, axis.stride,
                                        axis.dilation);
    if (shape[2 + i] < 1) refuse("images are ", text(images), "; with their padding they must be as large as a filter");
  }
  return shape;
}

/// A new tensor, its channels neighbours.
inline Tensor new_images(const Extents& shape, const Element& element, int32_t device) {
  Extents strides{};
  strides[1] = 1;
  int64_t next = std::max<int64_t>(shape[1], 1);
  const auto follow = [&](size_t dimension) {
    strides[dimension] = next;
    next *= std::max<int64_t>(shape[dimension], 1);
  };
  for (size_t i = kAxes; i-- > 0;) follow(2 + i);
  follow(0);
  return new_tensor(shape, strides.data(), element, device);
}

}  // namespace emitted::operation

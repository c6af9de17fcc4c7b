// Tensors as convolutions take them: images and filters.
#pragma once

#include <algorithm>

#include "torch_tensors.h"
#include "view.h"

namespace emitted::operation {

/// Dimensions of images and filters.
inline constexpr size_t kRank = kAxes + 2;

[[noreturn]] inline void refuse_order(const Tensor& x, const char* name) {
  refuse(name, " is ", text(x.sizes()), " with strides ", text(x.strides()),
         "; channels must be neighbours in memory, as they are in ", name,
         ".contiguous(memory_format=torch.channels_last", kAxes == 3 ? "_3d" : "", ")");
}

/// Calls `visit` with each dimension but the channels, the innermost in memory first.
template <class Visit>
void for_each_outer(const Visit& visit) {
  for (size_t i = kAxes; i-- > 0;) visit(2 + i);
  visit(0);
}

/// Elements from pixel to pixel of a tensor [n, channels, ...] whose channels are neighbours and
/// whose pixels are at one distance; the channels if there is one pixel, or none.
inline int64_t read_pixel_stride(const Tensor& x, const char* name) {
  const auto sizes = x.sizes(), strides = x.strides();
  if (x.numel() == 0) return sizes[1];
  if (sizes[1] > 1 && strides[1] != 1) refuse_order(x, name);
  int64_t first = 0, next = 0;
  for_each_outer([&](size_t dimension) {
    const int64_t size = sizes[dimension], stride = strides[dimension];
    if (size == 1) return;
    if (next == 0 ? stride < sizes[1] : stride != next) refuse_order(x, name);
    if (first == 0) first = stride;
    next = stride * size;
  });
  return first == 0 ? sizes[1] : first;
}

/// Images [n, channels, ...], of any size.
inline void* read_images(const Tensor& x, const char* name, DType type, int64_t channels, int32_t device,
                         int64_t& pixel_stride) {
  check_tensor(x, name, type, device);
  if (x.dim() != int64_t(kRank) || x.size(1) != channels)
    refuse(name, " is ", text(x.sizes()), "; it must have ", kRank, " dimensions and ", channels, " channels");
  pixel_stride = read_pixel_stride(x, name);
  return x.data_ptr();
}

inline Shape filters_shape() {
  Shape shape{kFilters, kChannels / kGroups};
  for (size_t i = kFirstAxis; i < 3; ++i) shape.append(kOperation.conv.axes[i].filter);
  return shape;
}

inline void* read_filters(const Tensor& x, const char* name, DType type, int32_t device) {
  check_tensor(x, name, type, device);
  check_shape(x, name, filters_shape());
  if (read_pixel_stride(x, name) != x.size(1)) refuse_order(x, name);
  return x.data_ptr();
}

/// A new tensor, its channels neighbours.
inline Tensor new_images(const Shape& shape, DType type, int32_t device) {
  int64_t strides[kRank], next = std::max<int64_t>(shape[1], 1);
  strides[1] = 1;
  for_each_outer([&](size_t dimension) {
    strides[dimension] = next;
    next *= std::max<int64_t>(shape[dimension], 1);
  });
  return cleave::torch_ops::empty_strided(shape, strides, type, device);
}

}  // namespace emitted::operation

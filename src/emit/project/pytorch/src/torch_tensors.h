// PyTorch's tensors. What is of another type, shape or order than the operation takes is refused by
// name, never copied.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string>

#include "cleave/core/enums.h"
#include "refuse.h"
#include "torch_ops/stable.h"

namespace emitted::operation {

using cleave::DType;
using torch::stable::Tensor;

/// Sizes of a tensor; no allocation, as every call has some.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes) {
    for (const int64_t size : sizes) append(size);
  }
  /// Whatever lists sizes: torch's, or another Shape.
  template <class Sizes>
  explicit Shape(const Sizes& sizes) {
    for (const int64_t size : sizes) append(size);
  }

  void append(int64_t size) { sizes_[rank_++] = size; }
  size_t size() const { return rank_; }
  const int64_t* data() const { return sizes_.data(); }
  const int64_t* begin() const { return data(); }
  const int64_t* end() const { return data() + rank_; }
  int64_t operator[](size_t i) const { return sizes_[i]; }

 private:
  std::array<int64_t, 5> sizes_{};
  size_t rank_ = 0;
};

/// The next argument of a call, taken off its stack.
template <class T>
T take(StableIValue*& next) {
  return torch::stable::detail::to<T>(*next++);
}

/// "(64, 128)"
template <class Sizes>
std::string text(const Sizes& sizes) {
  std::string list;
  for (const int64_t size : sizes) list += (list.empty() ? "" : ", ") + std::to_string(size);
  return "(" + list + (sizes.size() == 1 ? ",)" : ")");
}

template <class Sizes>
bool has_shape(const Tensor& x, const Sizes& shape) {
  return std::ranges::equal(x.sizes(), shape);
}

template <class Sizes>
void check_shape(const Tensor& x, const char* name, const Sizes& shape) {
  if (!has_shape(x, shape)) refuse(name, " is ", text(x.sizes()), "; it must be ", text(shape));
}

/// A tensor that is written has a place for each of its elements.
inline void check_apart(const Tensor& x, const char* name) {
  const auto sizes = x.sizes(), strides = x.strides();
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] > 1 && strides[i] == 0)
      refuse(name, " is ", text(sizes), " with strides ", text(strides), ", so that elements share their place; pass ",
             name, ".contiguous()");
}

/// Elements of the type of this number, on the right GPU.
inline void check_tensor(const Tensor& x, const char* name, int32_t type, int32_t device) {
  using cleave::torch_ops::name_of;
  if (cleave::torch_ops::type_number(x) != type) {
    const auto expected = torch::stable::detail::to<torch::headeronly::ScalarType>(torch::stable::detail::from(type));
    refuse(name, " is ", name_of(x.scalar_type()), "; it must be ", name_of(expected));
  }
  if (!x.is_cuda() || x.get_device_index() != device)
    refuse(name, " is not on cuda:", device, ", where the other operands are; move it there");
}

inline void check_tensor(const Tensor& x, const char* name, DType type, int32_t device) {
  check_tensor(x, name, cleave::torch_ops::type_number(type), device);
}

inline int32_t gpu_of(const Tensor& x, const char* name) {
  if (!x.is_cuda()) refuse(name, " is not on a CUDA device; move it there");
  return x.get_device_index();
}

/// The values of a vector of that length, side by side.
inline void* read_line(const Tensor& x, const char* name, int32_t type, int64_t length, int32_t device) {
  check_tensor(x, name, type, device);
  if (x.dim() != 1 || x.size(0) != length || (length > 1 && x.stride(0) != 1))
    refuse(name, " is ", text(x.sizes()), "; it must be (", length, ",), without gaps");
  return x.data_ptr();
}

/// One value, a float32 unless `type` says another.
inline void* read_value(const Tensor& x, const char* name, int32_t device, DType type = DType::f32) {
  check_tensor(x, name, type, device);
  if (x.numel() != 1) refuse(name, " is ", text(x.sizes()), "; it must hold one value");
  return x.data_ptr();
}

}  // namespace emitted::operation

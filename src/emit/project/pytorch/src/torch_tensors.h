// PyTorch's tensors. What is of another type, shape or order than the operation takes is refused by
// name, never copied.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "cleave/core/enums.h"

namespace emitted::operation {

using torch::stable::Tensor;
using Shape = std::vector<int64_t>;

/// The next argument of a call, taken off its stack.
template <class T>
T take(StableIValue*& next) {
  return torch::stable::detail::to<T>(*next++);
}

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw std::invalid_argument(text.str());
}

/// "(64, 128)"
inline std::string text(const Shape& shape) {
  std::string list;
  for (const int64_t size : shape) list += (list.empty() ? "" : ", ") + std::to_string(size);
  return "(" + list + (shape.size() == 1 ? ",)" : ")");
}

inline Shape shape_of(const Tensor& x) {
  const auto sizes = x.sizes();
  return {sizes.begin(), sizes.end()};
}

/// Whether `x` has this shape, told without an allocation, as every call asks.
inline bool has_shape(const Tensor& x, std::span<const int64_t> shape) {
  return std::ranges::equal(x.sizes(), shape);
}

/// An element type: its name, and its number in the PyTorch that is loaded.
struct Element {
  const char* name;
  int32_t (*number)();
};

constexpr Element element_of(cleave::DType type) {
  switch (type) {
    case cleave::DType::f16:
      return {"float16", aoti_torch_dtype_float16};
    case cleave::DType::bf16:
      return {"bfloat16", aoti_torch_dtype_bfloat16};
    case cleave::DType::f32:
      return {"float32", aoti_torch_dtype_float32};
    case cleave::DType::i8:
      return {"int8", aoti_torch_dtype_int8};
    case cleave::DType::e4m3:
      return {"float8_e4m3fn", aoti_torch_dtype_float8_e4m3fn};
    case cleave::DType::e5m2:
      return {"float8_e5m2", aoti_torch_dtype_float8_e5m2};
    case cleave::DType::i32:
      return {"int32", aoti_torch_dtype_int32};
  }
  return {};
}

inline constexpr Element kFloat32 = element_of(cleave::DType::f32);

/// Elements of the right type on the right GPU.
inline void check_tensor(const Tensor& x, const char* name, const Element& element, int32_t device) {
  int32_t number = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(x.get(), &number));
  if (number != element.number()) {
    refuse(name, " is ", torch::headeronly::toString(x.scalar_type()), "; it must be ", element.name);
  }
  if (!x.is_cuda() || x.get_device_index() != device)
    refuse(name, " is not on cuda:", device, ", where a is; move it there");
}

/// A new tensor from PyTorch's allocator.
inline Tensor new_tensor(std::span<const int64_t> shape, const int64_t* strides, const Element& element,
                         int32_t device) {
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(int64_t(shape.size()), shape.data(), strides, element.number(),
                                                  aoti_torch_device_type_cuda(), device, &handle));
  return Tensor(handle);
}

}  // namespace emitted::operation

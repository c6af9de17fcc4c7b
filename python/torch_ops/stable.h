// Dtypes, new tensors and the current stream by torch's stable ABI.
//
// Emitted extensions have a copy of this file.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cctype>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "cleave/problem.h"

// Declared here because torch's header hides it from code that is not built for CUDA. Weak, so that
// one build loads beside a torch without CUDA too, where nobody defines it.
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index,
                                                                                   void** ret_stream);

namespace cleave::torch_ops {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

/// The number of a dtype in the loaded torch, which may differ from that in its headers. Only torch's functions know
/// it, so it cannot be in DTypeInfo.
inline int32_t type_number(DType type) {
  constexpr int32_t (*kNumbers[])() = {
      aoti_torch_dtype_float16,       aoti_torch_dtype_bfloat16,    aoti_torch_dtype_float32, aoti_torch_dtype_int8,
      aoti_torch_dtype_float8_e4m3fn, aoti_torch_dtype_float8_e5m2, aoti_torch_dtype_int32};
  static_assert(std::size(kNumbers) == size_t(DType::i32) + 1);
  return kNumbers[size_t(type)]();
}

inline int32_t type_number(const Tensor& tensor) {
  int32_t number = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &number));
  return number;
}

/// As Python spells it: torch's C++ has names of its own.
inline std::string name_of(ScalarType type) {
  constexpr std::pair<std::string_view, std::string_view> kPythonNames[] = {{"Byte", "uint8"},
                                                                            {"Char", "int8"},
                                                                            {"Short", "int16"},
                                                                            {"Int", "int32"},
                                                                            {"Long", "int64"},
                                                                            {"Half", "float16"},
                                                                            {"Float", "float32"},
                                                                            {"Double", "float64"},
                                                                            {"Bool", "bool"},
                                                                            {"ComplexHalf", "complex32"},
                                                                            {"ComplexFloat", "complex64"},
                                                                            {"ComplexDouble", "complex128"}};
  const std::string_view name = torch::headeronly::toString(type);
  for (const auto& [theirs, python] : kPythonNames) {
    if (name == theirs) return std::string(python);
  }
  std::string lower(name);
  for (char& c : lower) c = char(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

/// A new tensor from torch's allocator (inside a graph capture: from the graph's pool). `strides`:
/// in elements, as many as sizes.
inline Tensor empty_strided(std::span<const int64_t> shape, const int64_t* strides, DType dtype, int device) {
  const bool cpu = device == kCpu;
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(int64_t(shape.size()), shape.data(), strides, type_number(dtype),
                                                  cpu ? aoti_torch_device_type_cpu() : aoti_torch_device_type_cuda(),
                                                  cpu ? 0 : device, &handle));
  return Tensor(handle);
}

/// The same, packed row by row, or, for matrices with `by_column`, column by column. At most 5 dimensions.
inline Tensor empty(std::span<const int64_t> shape, DType dtype, int device, bool by_column = false) {
  int64_t strides[5];
  int64_t packed = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = packed;
    packed *= std::max<int64_t>(shape[i], 1);  // as torch counts
  }
  if (by_column) {
    const size_t rows = shape.size() - 2;
    strides[rows] = 1;
    strides[rows + 1] = std::max<int64_t>(shape[rows], 1);
  }
  return empty_strided(shape, strides, dtype, device);
}

/// The handle of torch's current stream; null on the CPU.
inline void* current_stream(int device) {
  void* stream = nullptr;
  // No CUDA tensor comes from a torch that lacks the function.
  if (device != kCpu) TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  return stream;
}

}  // namespace cleave::torch_ops

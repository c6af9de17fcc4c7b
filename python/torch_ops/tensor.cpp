#include "tensor.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <utility>

// Declared here because torch's header hides it from code that is not built for CUDA. Weak, so that
// one build loads beside a torch without CUDA too, where nobody defines it.
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index,
                                                                                   void** ret_stream);

namespace cleave::torch_ops {
namespace {

/// By DType: the numbers of the torch that is loaded, which may differ from those of its headers.
constexpr int32_t (*kTypeNumbers[])() = {
    aoti_torch_dtype_float16,       aoti_torch_dtype_bfloat16,    aoti_torch_dtype_float32, aoti_torch_dtype_int8,
    aoti_torch_dtype_float8_e4m3fn, aoti_torch_dtype_float8_e5m2, aoti_torch_dtype_int32};
static_assert(std::size(kTypeNumbers) == std::size(kAnyType));

std::optional<DType> known_type(int32_t number) {
  for (const DType dtype : kAnyType) {
    if (kTypeNumbers[size_t(dtype)]() == number) return dtype;
  }
  return std::nullopt;
}

/// As Python spells it: torch's C++ has names of its own.
std::string name_of(ScalarType type) {
  constexpr std::pair<std::string_view, std::string_view> kPythonNames[] = {{"Byte", "uint8"},
                                                                            {"Short", "int16"},
                                                                            {"Long", "int64"},
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

}  // namespace

DType dtype_of(ScalarType type, const char* name) {
  namespace stable = torch::stable::detail;
  const std::optional<DType> known = known_type(stable::to<int32_t>(stable::from(type)));
  if (known) return *known;
  // Not by {fmt}: torch's headers come with one that refuses to be included here.
  throw Error(ErrorCode::invalid_type,
              std::string(name) + " is " + name_of(type) + "; it must be " + types_text(kAnyType));
}

std::optional<DType> dtype_of(std::optional<ScalarType> type, const char* name) {
  return type ? std::optional(dtype_of(*type, name)) : std::nullopt;
}

Operand read(const Tensor& tensor) {
  Operand operand{.data = tensor.data_ptr(),
                  .device = tensor.is_cuda() ? tensor.get_device_index() : kCpu,
                  .ndim = int(tensor.dim())};
  int32_t number = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &number));
  const std::optional<DType> known = known_type(number);
  operand.dtype = known.value_or(operand.dtype);
  if (!known) operand.other_type = name_of(tensor.scalar_type());
  operand.int64 = number == aoti_torch_dtype_int64();
  if (operand.ndim > Operand::kMaxRank) return operand;
  std::ranges::copy(tensor.sizes(), operand.shape);
  std::ranges::copy(tensor.strides(), operand.stride);
  return operand;
}

std::optional<Operand> read(const std::optional<Tensor>& tensor) {
  return tensor ? std::optional(read(*tensor)) : std::nullopt;
}

Tensor empty(std::span<const int64_t> shape, DType dtype, int device, bool by_column) {
  int64_t strides[Operand::kMaxRank];
  int64_t packed = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = packed;
    packed *= std::max<int64_t>(shape[i], 1);  // as torch counts
  }
  if (by_column) {
    strides[0] = 1;
    strides[1] = std::max<int64_t>(shape[0], 1);
  }
  return empty_strided(shape, strides, dtype, device);
}

Tensor empty_strided(std::span<const int64_t> shape, const int64_t* strides, DType dtype, int device) {
  const bool cpu = device == kCpu;
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(
      int64_t(shape.size()), shape.data(), strides, kTypeNumbers[size_t(dtype)](),
      cpu ? aoti_torch_device_type_cpu() : aoti_torch_device_type_cuda(), cpu ? 0 : device, &handle));
  return Tensor(handle);
}

void* current_stream(int device) {
  void* stream = nullptr;
  // No CUDA tensor comes from a torch that lacks the function.
  if (device != kCpu) {
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  }
  return stream;
}

}  // namespace cleave::torch_ops

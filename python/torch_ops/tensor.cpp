#include "tensor.h"

#include <algorithm>

namespace cleave::torch_ops {
namespace {

std::optional<DType> known_type(int32_t number) {
  for (const DType dtype : kAnyType) {
    if (type_number(dtype) == number) return dtype;
  }
  return std::nullopt;
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
  const int32_t number = type_number(tensor);
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

}  // namespace cleave::torch_ops

#include "buffer.h"

#include <algorithm>
#include <sstream>

namespace cleave::jax_ops {
namespace {

using xla::ffi::DataType;

std::string name_of(DataType type) {
  std::ostringstream text;
  text << type;
  return text.str();
}

}  // namespace

Operand read(const xla::ffi::AnyBuffer& buffer, int device) {
  const auto shape = buffer.dimensions();
  Operand operand{.data = buffer.untyped_data(), .device = device, .ndim = int(shape.size())};
  const DataType type = buffer.element_type();
  const auto known = std::ranges::find(kAnyType, uint8_t(type), [](DType x) { return info_of(x).xla; });
  if (known != kAnyType.end()) {
    operand.dtype = *known;
  } else {
    operand.other_type = name_of(type);
  }
  operand.int64 = type == DataType::S64;
  if (operand.ndim > Operand::kMaxRank) return operand;
  std::copy(shape.begin(), shape.end(), operand.shape);
  int64_t packed = 1;
  for (int i = operand.ndim; i-- > 0;) {
    operand.stride[i] = packed;
    packed *= std::max<int64_t>(operand.shape[i], 1);
  }
  return operand;
}

}  // namespace cleave::jax_ops

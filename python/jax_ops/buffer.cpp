#include "buffer.h"

#include <algorithm>
#include <sstream>
#include <utility>

namespace cleave::jax_ops {
namespace {

using xla::ffi::DataType;

constexpr std::pair<DataType, DType> kTypes[] = {
    {DataType::F16, DType::f16}, {DataType::BF16, DType::bf16},     {DataType::F32, DType::f32},
    {DataType::S8, DType::i8},   {DataType::F8E4M3FN, DType::e4m3}, {DataType::F8E5M2, DType::e5m2},
    {DataType::S32, DType::i32},
};

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
  const auto known = std::ranges::find(kTypes, type, &std::pair<DataType, DType>::first);
  if (known != std::end(kTypes)) {
    operand.dtype = known->second;
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

// Which of DLPack's element types are the library's.

#include <fmt/format.h>

#include <optional>

#include "tensor.h"

namespace cleave::python {
namespace {

std::optional<DType> known_type(dlpack::DataType type) {
  if (type.lanes != 1) return std::nullopt;
  switch (type.code << 8 | type.bits) {
    case dlpack::kFloat << 8 | 16:
      return DType::f16;
    case dlpack::kBfloat << 8 | 16:
      return DType::bf16;
    case dlpack::kFloat << 8 | 32:
      return DType::f32;
    case dlpack::kInt << 8 | 8:
      return DType::i8;
    case dlpack::kFloat8E4m3fn << 8 | 8:
      return DType::e4m3;
    case dlpack::kFloat8E5m2 << 8 | 8:
      return DType::e5m2;
    case dlpack::kInt << 8 | 32:
      return DType::i32;
    default:
      return std::nullopt;
  }
}

/// The name of any type of DLPack.
std::string type_text(dlpack::DataType type) {
  constexpr const char* kinds[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  constexpr const char* float8[] = {"e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu"};
  const size_t code = type.code;
  if (code < std::size(kinds)) return fmt::format("{}{}", kinds[code], type.bits);
  if (code - std::size(kinds) < std::size(float8)) {
    return fmt::format("float8_{}", float8[code - std::size(kinds)]);
  }
  return fmt::format("a type of width {}", type.bits);
}

}  // namespace

void set_element(TensorView& view, dlpack::DataType element) {
  view.element = element;
  if (const std::optional<DType> known = known_type(element)) {
    view.dtype = *known;
  } else {
    view.other_type = type_text(element);
    view.int64 = element.code == dlpack::kInt && element.bits == 64 && element.lanes == 1;
  }
}

}  // namespace cleave::python

// Which of DLPack's element types are the library's.

#include <fmt/format.h>

#include <optional>

#include "array/tensor.h"

namespace cleave::python {
namespace {

std::optional<DType> known_type(dlpack::DataType element) {
  for (const DType type : kAnyType) {
    const dlpack::DataType known = element_of(type);
    if (element.code == known.code && element.bits == known.bits && element.lanes == 1) return type;
  }
  return std::nullopt;
}

/// The name of any type of DLPack.
std::string type_text(dlpack::DataType type) {
  if (type.lanes != 1) return fmt::format("{}x{}", type_text({type.code, type.bits, 1}), type.lanes);
  constexpr const char* kinds[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  constexpr const char* float8[] = {"e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu"};
  const size_t code = type.code;
  if (code == dlpack::kBool && type.bits == 8) return "bool";  // as frameworks write it
  if (code < std::size(kinds)) return fmt::format("{}{}", kinds[code], type.bits);
  if (code - std::size(kinds) < std::size(float8)) {
    return fmt::format("float8_{}", float8[code - std::size(kinds)]);
  }
  return fmt::format("a type of width {}", type.bits);
}

}  // namespace

dlpack::DataType element_of(DType type) {
  const DTypeInfo info = info_of(type);
  return {info.dlpack, uint8_t(8 * info.bytes), 1};
}

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

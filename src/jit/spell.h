// Values as C++ spells them, for constants of translation units; cleave/names.h has them as users
// do.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "base/enumerators.h"

namespace cleave {

template <class Enum>
  requires std::is_enum_v<Enum>
std::string spell(Enum value) {
  return std::string(enumerators<Enum>.at(size_t(value)));
}
inline const char* spell(bool value) {
  return value ? "true" : "false";
}
inline uint32_t spell(uint32_t value) {
  return value;
}
inline const std::string& spell(const std::string& text) {
  return text;
}

}  // namespace cleave

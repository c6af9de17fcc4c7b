// The enumerators of an enumeration that counts from 0, as the compiler spells them: they are
// written in its definition alone.
#pragma once

#include <array>
#include <string_view>
#include <utility>

namespace cleave {
namespace detail {

/// "cleave::DType::f16"; nothing of a number that is no enumerator's, "(cleave::DType)7".
template <auto value>
consteval std::string_view enumerator() {
  std::string_view text = __PRETTY_FUNCTION__;
  text.remove_prefix(text.find("value = ") + 8);
  text = text.substr(0, text.find_first_of(";]"));
  return text.starts_with('(') ? std::string_view() : text;
}

template <class Enum, size_t first = 0>
consteval size_t count_enumerators() {
  if constexpr (enumerator<Enum(first)>().empty()) {
    return first;
  } else {
    return count_enumerators<Enum, first + 1>();
  }
}

}  // namespace detail

template <class Enum>
[[gnu::visibility("hidden")]] inline constexpr auto enumerators = []<size_t... i>(std::index_sequence<i...>) {
  return std::array{detail::enumerator<Enum(i)>()...};
}(std::make_index_sequence<detail::count_enumerators<Enum>()>());

/// The enumerators themselves, in order.
template <class Enum>
[[gnu::visibility("hidden")]] inline constexpr auto values_of = []<size_t... i>(std::index_sequence<i...>) {
  return std::array{Enum(i)...};
}(std::make_index_sequence<enumerators<Enum>.size()>());

/// body.operator()<value>(), compiled for each enumerator.
template <class Enum, class Body>
void dispatch(Enum value, const Body& body) {
  [&]<size_t... i>(std::index_sequence<i...>) {
    (void)((value == Enum(i) && (body.template operator()<Enum(i)>(), true)) || ...);
  }(std::make_index_sequence<enumerators<Enum>.size()>());
}

/// "f16".
template <class Enum>
constexpr std::string_view enumerator_name(Enum value) {
  std::string_view name = enumerators<Enum>.at(size_t(value));
  name.remove_prefix(name.rfind(':') + 1);
  return name;
}

}  // namespace cleave

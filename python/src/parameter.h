// Parameters of Python's functions as types: of each, its name, its type as users read it, its default and how it is
// parsed are said once. A function has lists of them, from which its signature follows.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <concepts>
#include <string>
#include <type_traits>

#include "values.h"

namespace cleave::python {

/// A string as an argument of templates.
template <size_t kSize>
struct Text {
  char characters[kSize];
  consteval Text(const char (&text)[kSize]) { std::copy_n(text, kSize, characters); }
};

/// What Python passed; null where the call has no such parameter.
struct ParameterValue {
  nanobind::handle value;
};

/// `kType` and `kDefault` are Python; without a default the parameter must be passed.
template <Text kName, Text kType, Text kDefault = "">
struct Parameter : ParameterValue {
  static constexpr const char* name() { return kName.characters; }
  static constexpr std::string_view type() { return kType.characters; }
  static constexpr std::string_view default_text() { return kDefault.characters; }
};

template <Text kName>
struct Array : Parameter<kName, "Array"> {};

template <Text kName>
struct MaybeArray : Parameter<kName, "Array | None", "None"> {};

template <Text kName, class Enum, Text kDefault>
struct OneOf : Parameter<kName, "str", kDefault> {
  static Enum parse(nanobind::handle value) { return parse_name<Enum>(value, kName.characters); }
};

/// Any string.
template <Text kName, Text kDefault>
struct Word : Parameter<kName, "str", kDefault> {
  static std::string_view parse(nanobind::handle value) {
    return parse_text(value, kName.characters);
  }
};

template <Text kName, Text kDefault, Text kType = "bool">
struct Flag : Parameter<kName, kType, kDefault> {
  static bool parse(nanobind::handle value) { return parse_flag(value, kName.characters); }
};

/// `kExpected` says, in messages, what it must be.
template <Text kName, Text kDefault = "", Text kType = "int", Text kExpected = "an integer">
struct Integer : Parameter<kName, kType, kDefault> {
  static int64_t parse(nanobind::handle value) {
    return parse_integer(value, kName.characters, kExpected.characters);
  }
};

template <Text kName, Text kDefault, Text kType = "float">
struct Number : Parameter<kName, kType, kDefault> {
  static float parse(nanobind::handle value) { return parse_scalar(value, kName.characters); }
};

template <Text kName, Text kDefault>
struct Dtype : Parameter<kName, "object", kDefault> {
  static DType parse(nanobind::handle value) { return parse_dtype(value, kName.characters); }
};

/// Parsed elsewhere.
template <Text kName, Text kType, Text kDefault = "">
struct Other : Parameter<kName, kType, kDefault> {};

/// The parameter P of a function in which it has no default.
template <class P>
struct Required : P {
  static constexpr std::string_view default_text() { return {}; }
};

template <class... Ps>
struct List {};

namespace detail {

template <class... Lists>
struct Concat {
  using Type = List<>;
};
template <class... Ps>
struct Concat<List<Ps...>> {
  using Type = List<Ps...>;
};
template <class... Ps, class... Qs, class... Lists>
struct Concat<List<Ps...>, List<Qs...>, Lists...> : Concat<List<Ps..., Qs...>, Lists...> {};

template <class P, class Left>
struct Unless;
template <class P, class... Qs>
struct Unless<P, List<Qs...>> {
  using Type = std::conditional_t<(std::same_as<P, Qs> || ...), List<>, List<P>>;
};

template <class From, class Left>
struct Without;
template <class... Ps, class Left>
struct Without<List<Ps...>, Left> : Concat<typename Unless<Ps, Left>::Type...> {};

}  // namespace detail

template <class... Lists>
using Concat = typename detail::Concat<Lists...>::Type;

/// The parameters of `From` that `Left` has not.
template <class From, class Left>
using Without = typename detail::Without<From, Left>::Type;

/// The arguments of one call.
template <class... Ps>
class Values : public Ps... {
 public:
  Values() = default;
  explicit Values(Ps... values)
    requires(sizeof...(Ps) > 0)
      : Ps(values)... {}

  /// What another function's arguments have of these.
  template <class... Qs>
  Values(const Values<Qs...>& other) : Ps{other.template get<Ps>()}... {}

  /// Null where there is no such parameter.
  template <class P>
  nanobind::handle get() const {
    if constexpr (std::derived_from<Values, P>) {
      return static_cast<const P&>(*this).value;
    } else {
      return {};
    }
  }

  template <class P>
  void set(nanobind::handle value) {
    static_cast<P&>(*this).value = value;
  }

  /// Parses the parameter. `target` stays where there is none, or None stands for the default.
  template <class P, class T>
  void read(T& target) const {
    const nanobind::handle value = get<P>();
    if (!value.is_valid() || (P::default_text() == "None" && value.is_none())) return;
    target = P::parse(value);
  }
};

}  // namespace cleave::python

template <class P>
struct nanobind::detail::type_caster<
    P, nanobind::detail::enable_if_t<std::is_base_of_v<cleave::python::ParameterValue, P>>> {
  NB_TYPE_CASTER(P, const_name("object"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    value.value = source;
    return true;
  }
};

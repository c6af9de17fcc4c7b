// Parameters of Python functions as types: each states once its name, its type as users read it, its default, and how
// it is parsed. A function has lists of them, from which its signature follows.
#pragma once

#include <nanobind/eval.h>
#include <nanobind/nanobind.h>

#include <concepts>
#include <string>
#include <type_traits>

#include "call/values.h"
#include "operands/lists.h"

namespace cleave::python {

/// The value that Python passed; null if the function has no such parameter.
struct ParameterValue {
  nanobind::handle value;
};

/// `kType` and `kDefault` are Python text; a parameter without a default is required.
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

template <Text kName, class Enum, Text kDefault, Text kType = "str">
struct OneOf : Parameter<kName, kType, kDefault> {
  static Enum parse(nanobind::handle value) { return parse_name<Enum>(value, kName.characters); }
};

/// Any string.
template <Text kName, Text kDefault>
struct Word : Parameter<kName, "str", kDefault> {
  static std::string_view parse(nanobind::handle value) { return parse_text(value, kName.characters); }
};

template <Text kName, Text kDefault, Text kType = "bool">
struct Flag : Parameter<kName, kType, kDefault> {
  static bool parse(nanobind::handle value) { return parse_flag(value, kName.characters); }
};

/// `kExpected`: what it must be, for messages.
template <Text kName, Text kDefault = "", Text kType = "int", Text kExpected = "an integer">
struct Integer : Parameter<kName, kType, kDefault> {
  static int64_t parse(nanobind::handle value) { return parse_integer(value, kName.characters, kExpected.characters); }
};

template <Text kName, Text kDefault, Text kType = "float">
struct Number : Parameter<kName, kType, kDefault> {
  static float parse(nanobind::handle value) { return parse_scalar(value, kName.characters); }
};

template <Text kName, Text kDefault>
struct Dtype : Parameter<kName, "object", kDefault> {
  static DType parse(nanobind::handle value) { return parse_dtype(value, kName.characters); }
};

/// A parameter that is parsed elsewhere.
template <Text kName, Text kType, Text kDefault = "">
struct Other : Parameter<kName, kType, kDefault> {};

/// P as a required parameter.
template <class P>
struct Required : P {
  static constexpr std::string_view default_text() { return {}; }
};

/// The default as a Python object, always the same one, so that calls which leave the parameter out are recognised.
template <class P>
nanobind::handle default_of() {
  static const nanobind::handle made = nanobind::eval(nanobind::str(P::default_text().data())).release();
  return made;
}

/// The arguments of one call.
template <class... Ps>
class Values : public Ps... {
 public:
  Values() = default;
  explicit Values(Ps... values)
    requires(sizeof...(Ps) > 0)
      : Ps(values)... {}

  /// Takes these parameters from another function's arguments.
  template <class... Qs>
  Values(const Values<Qs...>& other) : Ps{other.template get<Ps>()}... {}

  /// Null if there is no such parameter.
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

  /// Parses the parameter into `target`, which keeps its value if there is none, or if None stands for the default.
  template <class P, class T>
  void read(T& target) const {
    const nanobind::handle value = get<P>();
    if (!value.is_valid() || (P::default_text() == "None" && value.is_none())) return;
    if constexpr (!P::default_text().empty()) {
      if (value.is(default_of<P>())) {
        static const auto parsed = P::parse(value);
        target = parsed;
        return;
      }
    }
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

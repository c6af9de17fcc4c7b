// Defines functions of the module from lists of parameters.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "call/mistakes.h"
#include "call/parameter.h"

namespace cleave::python {
namespace detail {

template <class P>
std::string declaration() {
  return fmt::format("{}: {}{}{}", P::name(), P::type(), P::default_text().empty() ? "" : " = ", P::default_text());
}

/// On one line, since nanobind would show only the last of several.
template <class... Ps, class... Ks>
std::string signature(const char* name, bool is_method, List<Ps...>, List<Ks...>, const char* returns) {
  std::vector<std::string> parts;
  if (is_method) parts.push_back("self");
  (parts.push_back(declaration<Ps>()), ...);
  if (sizeof...(Ks) > 0) parts.push_back("*");
  (parts.push_back(declaration<Ks>()), ...);
  return fmt::format("def {}({}) -> {}", name, fmt::join(parts, ", "), returns);
}

/// Also passes None on, so that the function refuses it in its own words.
template <class P>
auto annotation() {
  if constexpr (P::default_text().empty()) {
    return nanobind::arg(P::name()).none();
  } else {
    return nanobind::arg(P::name()).none() = default_of<P>();
  }
}

template <class... Ps, class... Ks>
Signature names(const std::string& function, bool is_method, List<Ps...>, List<Ks...>) {
  return {.function = function,
          .parameters = {Ps::name()..., Ks::name()...},
          .positional = sizeof...(Ps),
          .required = size_t((Ps::default_text().empty() + ... + 0)),
          .is_method = is_method};
}

template <class... Ps, class... Ks, class Define>
auto with_annotations(List<Ps...>, List<Ks...>, const Define& define) {
  if constexpr (sizeof...(Ks) == 0) {
    return define(annotation<Ps>()...);
  } else {
    return define(annotation<Ps>()..., nanobind::kw_only(), annotation<Ks>()...);
  }
}

/// The text with enumerations' names filled in where braces call for them.
inline std::string filled(std::string doc) {
  const auto fill = [&doc](std::string_view place, const std::vector<std::string>& names) {
    const size_t at = doc.find(place);
    if (at != std::string::npos) doc.replace(at, place.size(), fmt::format("\"{}\"", fmt::join(names, "\", \"")));
  };
  fill("{activations}", names_of<Activation>());
  fill("{modes}", names_of<SplitKMode>());
  fill("{quantized}", names_of(kQuantizedTypes));
  return doc;
}

/// A function of a module, or a method of the class `Self`.
template <class... Self, class Scope, class... Ps, class... Ks, class Function>
void define(Scope& scope, const std::string& prefix, const char* name, List<Ps...> positional, List<Ks...> keywords,
            const char* returns, const char* doc, const Function& function) {
  constexpr bool kIsMethod = sizeof...(Self) > 0;
  const std::string declared = signature(name, kIsMethod, positional, keywords, returns);
  with_annotations(positional, keywords, [&](const auto&... annotations) {
    scope.def(
        name,
        [function](const Self&... self, Ps... by_position, Ks... by_name) {
          return function(self..., Values<Ps..., Ks...>(by_position..., by_name...));
        },
        annotations..., filled(doc).c_str(), nanobind::sig(declared.c_str()));
  });
  explain_mistakes(scope.attr("__dict__")[name], names(prefix + name, kIsMethod, positional, keywords));
}

}  // namespace detail

/// Adds a function of a module: `function` takes Values<Ps..., Ks...>. The `Ps` may be passed by
/// position, the `Ks` only by name.
template <class... Ps, class... Ks, class Function>
void define(nanobind::module_& m, const char* name, List<Ps...> positional, List<Ks...> keywords, const char* returns,
            const char* doc, const Function& function) {
  detail::define(m, "", name, positional, keywords, returns, doc, function);
}

/// The same for a method, whose `function` takes the object first.
template <class Class, class... Ps, class... Ks, class Function>
void define(nanobind::class_<Class>& type, const char* name, List<Ps...> positional, List<Ks...> keywords,
            const char* returns, const char* doc, const Function& function) {
  const std::string scope = nanobind::borrow<nanobind::str>(type.attr("__name__")).c_str();
  detail::define<Class>(type, scope + ".", name, positional, keywords, returns, doc, function);
}

}  // namespace cleave::python

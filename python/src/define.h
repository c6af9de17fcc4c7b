// Functions of the module from lists of parameters.
#pragma once

#include <nanobind/eval.h>
#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "mistakes.h"
#include "parameter.h"

namespace cleave::python {
namespace detail {

template <class P>
std::string declaration() {
  std::string text = std::string(P::name()) + ": " + std::string(P::type());
  if (!P::default_text().empty()) text += " = " + std::string(P::default_text());
  return text;
}

/// One line: of several, nanobind would show only the last.
template <class... Ps, class... Ks>
std::string signature(const char* name, bool is_method, List<Ps...>, List<Ks...>, const char* returns) {
  std::vector<std::string> parts;
  if (is_method) parts.push_back("self");
  (parts.push_back(declaration<Ps>()), ...);
  if (sizeof...(Ks) > 0) parts.push_back("*");
  (parts.push_back(declaration<Ks>()), ...);
  std::string text = std::string("def ") + name + "(";
  for (size_t i = 0; i < parts.size(); ++i) text += (i ? ", " : "") + parts[i];
  return text + ") -> " + returns;
}

/// None, too, is for the function to refuse, by its own words.
template <class P>
auto annotation() {
  if constexpr (P::default_text().empty()) {
    return nanobind::arg(P::name()).none();
  } else {
    return nanobind::arg(P::name()).none() = nanobind::eval(nanobind::str(P::default_text().data()));
  }
}

template <class... Ps, class... Ks>
Signature names(const char* function, List<Ps...>, List<Ks...>) {
  return {.function = function,
          .parameters = {Ps::name()..., Ks::name()...},
          .positional = sizeof...(Ps),
          .required = size_t((Ps::default_text().empty() + ... + 0))};
}

template <class... Ps, class... Ks, class Define>
auto with_annotations(List<Ps...>, List<Ks...>, const Define& define) {
  if constexpr (sizeof...(Ks) == 0) {
    return define(annotation<Ps>()...);
  } else {
    return define(annotation<Ps>()..., nanobind::kw_only(), annotation<Ks>()...);
  }
}

}  // namespace detail

/// With the names of enumerations where braces call for them.
inline std::string filled(std::string doc) {
  const auto fill = [&doc](std::string_view place, const std::vector<std::string>& names) {
    const size_t at = doc.find(place);
    if (at == std::string::npos) return;
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "\"" : ", \"") + name + '"';
    doc.replace(at, place.size(), text);
  };
  fill("{activations}", names_of<Activation>());
  fill("{modes}", names_of<SplitKMode>());
  return doc;
}

/// Adds a function of a module: `function` takes Values<Ps..., Ks...>. The `Ps` may be passed by
/// position, the `Ks` only by name.
template <class... Ps, class... Ks, class Function>
void define(nanobind::module_& m, const char* name, List<Ps...> positional, List<Ks...> keywords, const char* returns,
            const char* doc, const Function& function) {
  const std::string signature = detail::signature(name, false, positional, keywords, returns);
  detail::with_annotations(positional, keywords, [&](const auto&... annotations) {
    m.def(
        name,
        [function](Ps... by_position, Ks... by_name) {
          return function(Values<Ps..., Ks...>(by_position..., by_name...));
        },
        annotations..., filled(doc).c_str(), nanobind::sig(signature.c_str()));
  });
  explain_mistakes(m.attr(name), detail::names(name, positional, keywords));
}

/// The same of a method, whose `function` takes the object first.
template <class Class, class... Ps, class... Ks, class Function>
void define(nanobind::class_<Class>& type, const char* name, List<Ps...> positional, List<Ks...> keywords,
            const char* returns, const char* doc, const Function& function) {
  const std::string signature = detail::signature(name, true, positional, keywords, returns);
  detail::with_annotations(positional, keywords, [&](const auto&... annotations) {
    type.def(
        name,
        [function](const Class& self, Ps... by_position, Ks... by_name) {
          return function(self, Values<Ps..., Ks...>(by_position..., by_name...));
        },
        annotations..., filled(doc).c_str(), nanobind::sig(signature.c_str()));
  });
  const nanobind::str qualified = nanobind::borrow<nanobind::str>(type.attr("__name__"));
  Signature names = detail::names(name, positional, keywords);
  names.function = std::string(qualified.c_str()) + "." + name;
  names.is_method = true;
  explain_mistakes(type.attr("__dict__")[name], std::move(names));
}

}  // namespace cleave::python

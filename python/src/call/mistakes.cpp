#include "call/mistakes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <unordered_map>

#include "call/vectorcall.h"
#include "module/bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

/// By callable; they live as long as the process.
std::unordered_map<PyObject*, Signature>* signatures = nullptr;

/// Whether the word is another library's option to transpose an operand: transpose_b, trans_b, TransB.
bool transposes(std::string word, char operand) {
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return word.starts_with("trans") && word.ends_with(operand) && word.size() <= std::string_view("transpose_b").size();
}

std::string guess(const std::string& word, const std::vector<std::string>& known) {
  for (const char operand : {'a', 'b'}) {
    if (transposes(word, operand) && std::ranges::find(known, std::string(1, operand)) != known.end())
      return fmt::format("; pass {}.T, a view: nothing is copied", operand);
  }
  const std::string near = near_name(word, known);
  return near.empty() ? fmt::format("; it has {}", fmt::join(known, ", ")) : near;
}

/// Empty where the arguments fit.
std::string mistake_of(const Signature& s, size_t count, nb::handle names) {
  std::vector<std::string> keywords;
  if (names.is_valid()) keywords = nb::cast<std::vector<std::string>>(nb::list(names));
  const auto begin = s.parameters.begin();
  for (const std::string& keyword : keywords) {
    const auto place = std::find(begin, s.parameters.end(), keyword);
    if (place == s.parameters.end()) {
      return fmt::format("{}() got an unexpected keyword argument '{}'{}", s.function, keyword,
                         guess(keyword, s.parameters));
    }
    if (place < begin + ptrdiff_t(std::min(count, s.positional)))
      return fmt::format("{}() got multiple values for argument '{}'", s.function, keyword);
  }
  if (count > s.positional) {
    return fmt::format("{}() takes {} positional arguments but {} were given; pass {} by name", s.function,
                       s.positional, count, s.positional < s.parameters.size() ? s.parameters[s.positional] : "none");
  }
  std::vector<std::string> missing;
  for (size_t i = count; i < s.required; ++i) {
    if (std::ranges::find(keywords, begin[i]) == keywords.end()) missing.push_back(begin[i]);
  }
  if (missing.empty()) return {};
  return fmt::format("{}() is missing {}", s.function, fmt::join(missing, ", "));
}

/// Replaces the exception that is set, if the call fits no signature.
void explain(PyObject* callable, size_t count, PyObject* names) {
  nb::python_error original;  // takes the exception
  try {
    const Signature& signature = signatures->at(callable);
    if (signature.is_method && count > 0) --count;
    const std::string mistake = mistake_of(signature, count, names);
    if (!mistake.empty()) return PyErr_SetString(PyExc_TypeError, mistake.c_str());
  } catch (const std::exception&) {
    // A keyword that is no UTF-8, say. Nothing may be thrown through CPython's frames.
  }
  original.restore();
}

/// Functions are of a few kinds, each with one entry of its own.
constexpr size_t kKinds = 4;
vectorcallfunc originals[kKinds] = {};

template <size_t kKind>
PyObject* call(PyObject* callable, PyObject* const* arguments, size_t count, PyObject* names) {
  PyObject* const result = originals[kKind](callable, arguments, count, names);
  if (!result && PyErr_ExceptionMatches(PyExc_TypeError)) {
    explain(callable, size_t(PyVectorcall_NARGS(count)), names);
  }
  return result;
}

constexpr vectorcallfunc kEntries[kKinds] = {call<0>, call<1>, call<2>, call<3>};

}  // namespace

std::string near_name(const std::string& word, const std::vector<std::string>& known) {
  const nb::list near =
      nb::cast<nb::list>(nb::module_::import_("difflib").attr("get_close_matches")(word, known, 1, 0.7));
  return near.size() == 0 ? std::string() : fmt::format(". Did you mean '{}'?", nb::cast<std::string>(near[0]));
}

void explain_mistakes(nb::handle function, Signature signature) {
  if (!signatures) signatures = new std::unordered_map<PyObject*, Signature>;
  const vectorcallfunc entry = entry_of(function);
  if (!entry || std::ranges::find(kEntries, entry) != std::end(kEntries)) return;
  for (size_t kind = 0; kind < kKinds; ++kind) {
    if (originals[kind] && originals[kind] != entry) continue;
    originals[kind] = entry;
    set_entry(function, kEntries[kind]);
    signatures->insert_or_assign(nb::borrow(function).release().ptr(), std::move(signature));
    return;
  }
}

void bind_mistakes(nb::module_& m) {
  m.def(
      "explain_mistakes",
      [](nb::handle function, const std::string& name, const std::vector<std::string>& parameters) {
        explain_mistakes(function, {name, parameters, parameters.size()});
      },
      "function"_a, "name"_a, "parameters"_a,
      "Calls of `function` with a keyword that it does not have say which one was meant.");
}

}  // namespace cleave::python

// Arguments that are not arrays: names, numbers, dtypes.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cleave/names.h"
#include "cleave/problem.h"
#include "operands/operand.h"

namespace cleave::python {

/// Throws Error(invalid_type) for what is no string.
std::string_view parse_text(nanobind::handle value, const char* name);

template <class Enum>
Enum parse_name(nanobind::handle value, const char* name) {
  return from_string<Enum>(parse_text(value, name), name);
}

/// All names of an enumeration, "auto" first.
template <class Enum>
std::vector<std::string> names_of() {
  std::vector<std::string> names;
  for (int i = 0; to_string(Enum(i)) != "unknown"; ++i) names.emplace_back(to_string(Enum(i)));
  std::ranges::stable_partition(names, [](const auto& name) { return name == "auto"; });
  return names;
}

template <class Enum>
std::vector<std::string> names_of(std::span<const Enum> values) {
  std::vector<std::string> names;
  for (const Enum value : values) names.emplace_back(to_string(value));
  return names;
}

/// An integer of any class. `expected` says, in messages, what it must be.
int64_t parse_integer(nanobind::handle value, const char* name, const char* expected = "an integer");

/// True or False; nothing that merely counts as one of them.
bool parse_flag(nanobind::handle value, const char* name);

/// True, False or "batch_invariant".
Determinism parse_determinism(nanobind::handle value, const char* name);

/// "k".
Determinism parse_sum_order(nanobind::handle value, const char* name);

/// A number, as float32.
float parse_scalar(nanobind::handle value, const char* name);

/// A name, a torch or NumPy dtype, or an object with a `name`: "float16", "float8_e4m3fn" and so
/// on, as cleave/names.h has them (also "f16", "e4m3" and so on). Throws Error(invalid_type) for
/// what is none of `allowed`.
DType parse_dtype(nanobind::handle value, const char* name, std::span<const DType> allowed = kAnyType);

/// The name as a Python string that is made once.
nanobind::handle dtype_name(DType dtype);

}  // namespace cleave::python

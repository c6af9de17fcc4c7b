// Raising the exceptions that users see.
#pragma once

#include <fmt/format.h>
#include <nanobind/nanobind.h>

#include "cleave/error.h"

namespace cleave::python {

/// Python's TypeError.
template <class... Args>
[[noreturn]] void raise_type(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorCode::invalid_type, fmt::format(format, std::forward<Args>(args)...));
}

/// Python's ValueError.
template <class... Args>
[[noreturn]] void raise_value(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorCode::invalid_argument, fmt::format(format, std::forward<Args>(args)...));
}

/// The name of an object's type, for messages.
inline const char* class_name(nanobind::handle object) {
  return Py_TYPE(object.ptr())->tp_name;
}

}  // namespace cleave::python

// Errors, worded with {fmt}.
#pragma once

#include <fmt/format.h>

#include "cleave/error.h"

namespace cleave {

template <class... Args>
[[noreturn]] void refuse(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

/// For a dtype, or an object of the wrong kind: Python's TypeError.
template <class... Args>
[[noreturn]] void refuse_type(fmt::format_string<Args...> format, Args&&... args) {
  refuse(ErrorCode::invalid_type, format, std::forward<Args>(args)...);
}

/// For a shape, a stride, a number: Python's ValueError.
template <class... Args>
[[noreturn]] void refuse_value(fmt::format_string<Args...> format, Args&&... args) {
  refuse(ErrorCode::invalid_argument, format, std::forward<Args>(args)...);
}

}  // namespace cleave

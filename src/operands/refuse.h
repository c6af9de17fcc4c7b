// Errors about what a caller passed, worded with {fmt}.
#pragma once

#include <fmt/format.h>

#include "cleave/error.h"

namespace cleave {

/// For a dtype, or an object of the wrong kind: Python's TypeError.
template <class... Args>
[[noreturn]] void refuse_type(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorCode::invalid_type, fmt::format(format, std::forward<Args>(args)...));
}

/// For a shape, a stride, a number: Python's ValueError.
template <class... Args>
[[noreturn]] void refuse_value(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorCode::invalid_argument, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace cleave

// What helps where a tensor's strides do not serve.
#pragma once

#include <fmt/format.h>

#include <string>

namespace cleave {

/// `written`: whether the operation writes it, so that a copy would keep the result.
inline std::string pass_contiguous(const char* argument, bool written) {
  if (written) return fmt::format("Pass a contiguous {}, and copy the result from it", argument);
  return fmt::format("Pass a contiguous copy of {}", argument);
}

}  // namespace cleave

// What is wrong with a call is said by name, with its remedy.
#pragma once

#include <sstream>
#include <stdexcept>

namespace emitted::operation {

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw std::invalid_argument(text.str());
}

}  // namespace emitted::operation

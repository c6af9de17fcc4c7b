// Whether a kernel serves a call. What is wrong is said with its remedy; nothing said is nothing wrong.
#pragma once

#include <sstream>
#include <string>

#include "call.h"

namespace emitted::operation {

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// What is wrong with strides, or with sizes that no tile serves.
std::string find_obstacle(const cleave::GemmProblem& problem, const Kernel& kernel);

/// Whether there is nothing to compute.
bool is_empty(const cleave::GemmProblem& problem);

/// Fills `view`, unless the kernel cannot count the tiles.
std::string find_view(const cleave::GemmProblem& problem, const Kernel& kernel, View& view);

/// What is wrong with the rest of a call: pointers that are not null, factors, and C where it is
/// read.
std::string find_misplaced(const Given& given, const Kernel& kernel);

/// Which of the pointers that a launch follows is null.
std::string find_missing(const Given& given);

}  // namespace emitted::operation

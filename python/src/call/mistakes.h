// Explains what is wrong with a call that fits no signature.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

namespace cleave::python {

struct Signature {
  std::string function;
  std::vector<std::string> parameters;  ///< those that may be passed by position first
  size_t positional = 0;                ///< how many these are
  size_t required = 0;                  ///< the first of them, without defaults
  bool is_method = false;
};

/// `. Did you mean 'serial'?`, or nothing where no known name is near.
std::string near_name(const std::string& word, const std::vector<std::string>& known);

/// Makes the TypeError of a call of `function` that Python or nanobind refuses say which keyword is unknown, and which
/// was meant, or which arguments are missing or too many. Valid calls are no slower: only a failed call is examined.
void explain_mistakes(nanobind::handle function, Signature signature);

}  // namespace cleave::python

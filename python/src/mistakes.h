// What is wrong with a call that fits no signature, in words.
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

/// Calls of `function` that Python or nanobind refuses with a TypeError say which keyword is unknown, and the one that
/// was meant, or what is missing or too many. Calls that fit are none the slower: only a call that has failed is looked
/// at again.
void explain_mistakes(nanobind::handle function, Signature signature);

}  // namespace cleave::python

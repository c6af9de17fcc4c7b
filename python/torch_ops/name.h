// Arguments of type `str`: names of enumerators, and texts of epilogue functions.
#pragma once

#include <torch/csrc/stable/library.h>

#include <string_view>

#include "cleave/epilogue.h"
#include "cleave/names.h"
#include "operands/lists.h"

namespace cleave::torch_ops {

/// A string as torch hands it over, not yet read. (A parameter of type std::string would leak:
/// torch's conversion never frees a copy that it makes.)
struct UnreadString {
  StringHandle text;

  /// Calls `function` with the string, once, since it returns the string to torch.
  template <class Function>
  decltype(auto) read(const Function& function) const {
    struct Owner {
      StringHandle text;
      ~Owner() { torch_delete_string(text); }
    } const owner{text};
    const char* data = nullptr;
    size_t size = 0;
    TORCH_ERROR_CODE_CHECK(torch_string_c_str(text, &data));
    TORCH_ERROR_CODE_CHECK(torch_string_length(text, &size));
    return function(std::string_view(data, size));
  }
};

template <class Enum, Text kArgument>
struct Name : UnreadString {
  /// Throws Error(invalid_argument), listing every name.
  operator Enum() const {
    return read([](std::string_view text) { return from_string<Enum>(text, kArgument.characters); });
  }
};

struct FunctionText : UnreadString {
  /// Throws Error(invalid_argument), naming the line, if the text is not a function.
  const EpilogueFunction& function() const {
    return read([](std::string_view text) -> const EpilogueFunction& { return epilogue_function(text); });
  }
};

}  // namespace cleave::torch_ops

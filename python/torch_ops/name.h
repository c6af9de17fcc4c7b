// Arguments of type `str` that name one of an enumeration.
#pragma once

#include <torch/csrc/stable/library.h>

#include <string_view>

#include "cleave/names.h"

namespace cleave::torch_ops {

/// A string as torch hands it over, not yet read. (A parameter of type std::string would leak:
/// torch's conversion never frees a copy that it makes.)
template <class Enum>
struct Name {
  StringHandle text;

  /// Once: it gives the string back. Throws Error(invalid_argument), listing every name.
  operator Enum() const {
    struct Owner {
      StringHandle text;
      ~Owner() { torch_delete_string(text); }
    } const owner{text};
    const char* data = nullptr;
    size_t size = 0;
    TORCH_ERROR_CODE_CHECK(torch_string_c_str(text, &data));
    TORCH_ERROR_CODE_CHECK(torch_string_length(text, &size));
    return from_string<Enum>(std::string_view(data, size));
  }
};

}  // namespace cleave::torch_ops

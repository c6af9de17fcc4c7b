// The translation unit of a kernel: its configuration as a constant, and its entry point.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "jit/spell.h"

namespace cleave {

/// ".a = cleave::DType::f16," and so on, a line each, of `names`, which are separated by ", ".
template <class... Values>
std::string print_members(std::string_view names, const Values&... values) {
  std::string text;
  const auto print = [&](const auto& value) {
    const size_t end = names.find(',');
    text += fmt::format("    .{} = {},\n", names.substr(0, end), spell(value));
    if (end != names.npos) names.remove_prefix(end + 2);
  };
  (print(values), ...);
  return text;
}

/// The members of `config`, all of which are named, in their order: one that is added to the struct
/// and forgotten here is an error of the compiler.
#define CLEAVE_PRINT_MEMBERS(config, ...)                      \
  [&] {                                                        \
    const auto& [__VA_ARGS__] = config;                        \
    return ::cleave::print_members(#__VA_ARGS__, __VA_ARGS__); \
  }()

/// The same of a member that is a struct itself: its lines, one level further in, between braces.
std::string braced(const std::string& members);

#define CLEAVE_PRINT_STRUCT(config, ...) ::cleave::braced(CLEAVE_PRINT_MEMBERS(config, __VA_ARGS__))

/// A kernel of kernels/cleave: the template `name` of the header of that name in `folder`.
struct KernelText {
  std::string_view folder;
  std::string_view name;
  const char* config;         ///< type of the configuration
  std::string members;        ///< print_members
  const char* launch_bounds;  ///< threads of a CTA, CTAs that an SM has room for
  const char* entry;          ///< name of the entry point
  const char* params;         ///< type of its parameter
  std::string beside;         ///< definitions that need the configuration
};

/// What NVRTC compiles. Equal configurations give equal text, since the text is part of the cache
/// key.
std::string translation_unit(const KernelText& kernel);

}  // namespace cleave

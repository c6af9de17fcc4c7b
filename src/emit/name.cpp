#include "emit/name.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "base/refuse.h"

namespace cleave {
namespace {

bool is_capital(char c) {
  return c >= 'A' && c <= 'Z';
}
bool is_small(char c) {
  return c >= 'a' && c <= 'z';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_identifier(std::string_view name) {
  const auto sound = [](char c) { return is_small(c) || is_capital(c) || is_digit(c) || c == '_'; };
  return !name.empty() && std::ranges::all_of(name, sound) && !is_digit(name[0]) && name[0] != '_' &&
         name.find("__") == name.npos;
}

constexpr std::string_view kKeywords[] = {
    "alignas",     "alignof",  "and",       "and_eq",    "asm",       "auto",         "bitand",
    "bitor",       "bool",     "break",     "case",      "catch",     "char",         "char8_t",
    "char16_t",    "char32_t", "class",     "co_await",  "co_return", "co_yield",     "compl",
    "concept",     "const",    "consteval", "constexpr", "constinit", "const_cast",   "continue",
    "decltype",    "default",  "delete",    "do",        "double",    "dynamic_cast", "else",
    "enum",        "explicit", "export",    "extern",    "false",     "float",        "for",
    "friend",      "goto",     "if",        "inline",    "int",       "long",         "mutable",
    "namespace",   "new",      "noexcept",  "not",       "not_eq",    "nullptr",      "operator",
    "or",          "or_eq",    "private",   "protected", "public",    "register",     "reinterpret_cast",
    "requires",    "return",   "short",     "signed",    "sizeof",    "static",       "static_assert",
    "static_cast", "struct",   "switch",    "template",  "this",      "thread_local", "throw",
    "true",        "try",      "typedef",   "typeid",    "typename",  "union",        "unsigned",
    "using",       "virtual",  "void",      "volatile",  "wchar_t",   "while",        "xor",
    "xor_eq",
};

/// What emitted code says of others, from within a namespace of that name; and macros that are not
/// written as macros are.
constexpr std::string_view kUsed[] = {
    "cleave", "errno", "linux", "main", "math_errhandling", "stderr", "stdin", "stdout", "std", "torch", "unix",
};

bool is_one_of(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

/// EOF, SYS_read, M_PIf
bool is_like_a_macro(std::string_view name) {
  return std::ranges::none_of(name.substr(0, name.find('_')), is_small);
}

/// cuInit, CUstream
bool is_like_cuda(std::string_view name) {
  return name.starts_with("CU") || (name.starts_with("cu") && name.size() > 2 && is_capital(name[2]));
}

/// Why C++ would take the name for something else; nullptr if it would not.
const char* find_taker(std::string_view name) {
  if (is_one_of(kKeywords, name)) return "which C++ has as a keyword";
  if (is_one_of(kUsed, name)) return "which C++ or a library uses";
  if (name.ends_with("_t")) return "and C keeps what ends in _t for types";
  if (is_like_a_macro(name)) return "and C and CUDA begin macros with a word in capitals";
  if (is_like_cuda(name)) return "and CUDA's driver begins its names so";
  return nullptr;
}

}  // namespace

void check_name(const std::string& name) {
  if (!is_identifier(name)) {
    refuse_value(
        "name is \"{}\"; it must be an identifier of letters, digits and single underscores that begins with a letter, "
        "such as \"projection\"",
        name);
  }
  if (const char* taker = find_taker(name)) {
    refuse_value("name is \"{}\", {}; pass another, such as \"my_{}\"", name, taker,
                 name.ends_with("_t") ? name.substr(0, name.size() - 2) : name);
  }
}

void check_operand_name(const std::string& name, const char* what) {
  if (const char* taker = find_taker(name)) {
    refuse(ErrorCode::unsupported, "the epilogue function has an {} \"{}\", {}; rename it, \"my_{}\"", what, name,
           taker, name.ends_with("_t") ? name.substr(0, name.size() - 2) : name);
  }
}

}  // namespace cleave

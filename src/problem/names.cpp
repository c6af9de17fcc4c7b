#include "cleave/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cleave/error.h"

namespace cleave {
namespace {

// Each table lists its names in the order of the enumerators.
constexpr std::string_view dtype_names[] = {"float16",       "bfloat16",    "float32", "int8",
                                            "float8_e4m3fn", "float8_e5m2", "int32"};
constexpr std::string_view precision_names[] = {"tf32", "ieee"};
constexpr std::string_view split_k_mode_names[] = {"none",    "serial",   "parallel",
                                                   "cluster", "stream_k", "auto"};
constexpr std::string_view activation_names[] = {"none", "relu", "gelu_tanh",
                                                 "gelu", "silu", "swiglu"};
constexpr std::string_view bias_names[] = {"none", "row", "column"};
constexpr std::string_view scaling_names[] = {"none", "vector", "block"};
constexpr std::string_view grouping_names[] = {"none", "m", "n", "k"};
constexpr std::string_view bounds_names[] = {"ends", "indptr", "starts", "aligned_ends", "counts"};
constexpr std::string_view conv_names[] = {"none", "fprop", "dgrad", "wgrad"};
constexpr std::string_view division_names[] = {"auto", "fast", "plain", "fast_load", "fast_store"};
constexpr std::string_view granularity_names[] = {"tensor", "row", "block_1x128", "block_128x128"};
constexpr std::string_view major_names[] = {"k", "mn"};
constexpr std::string_view order_names[] = {"row", "column"};
constexpr std::string_view family_names[] = {"auto", "sm90", "portable"};

template <class Enum>
std::string_view name_of(Enum value, std::span<const std::string_view> names) {
  const size_t index = size_t(value);
  return index < names.size() ? names[index] : "unknown";
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = char(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

/// Insertions, deletions and replacements that turn one word into the other.
size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t(0));
  for (size_t i = 1; i <= from.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t replaced = diagonal + (from[i - 1] != to[j - 1]);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, replaced}));
    }
  }
  return row[to.size()];
}

/// `. Did you mean "serial"?`, or nothing where no name is near.
std::string guess(std::string_view name, std::span<const std::string_view> names) {
  constexpr size_t kLongest = 32;
  if (name.size() > kLongest) return {};
  std::string_view closest;
  size_t distance = 2 + name.size() / 4;  // from there on, it is no typing mistake
  for (const std::string_view candidate : names) {
    const size_t d = edit_distance(lower(name), candidate);
    if (d < distance) closest = candidate, distance = d;
  }
  return closest.empty() ? std::string() : fmt::format(". Did you mean \"{}\"?", closest);
}

template <class Enum>
Enum find(std::string_view what, std::string_view name, std::span<const std::string_view> names,
          ErrorCode code = ErrorCode::invalid_argument) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return Enum(i);
  }
  throw Error(code, fmt::format("{} is \"{}\"; it must be one of {}{}", what, name,
                                fmt::join(names.begin(), names.end(), ", "), guess(name, names)));
}

}  // namespace

std::string_view to_string(DType value) {
  return name_of(value, dtype_names);
}
std::string_view to_string(Precision value) {
  return name_of(value, precision_names);
}
std::string_view to_string(SplitKMode value) {
  return name_of(value, split_k_mode_names);
}
std::string_view to_string(Activation value) {
  return name_of(value, activation_names);
}
std::string_view to_string(Bias value) {
  return name_of(value, bias_names);
}
std::string_view to_string(Scaling value) {
  return name_of(value, scaling_names);
}
std::string_view to_string(Grouping value) {
  return name_of(value, grouping_names);
}
std::string_view to_string(GroupBounds value) {
  return name_of(value, bounds_names);
}
std::string_view to_string(Conv value) {
  return name_of(value, conv_names);
}
std::string_view to_string(Division value) {
  return name_of(value, division_names);
}
std::string_view to_string(Granularity value) {
  return name_of(value, granularity_names);
}
std::string_view to_string(Major value) {
  return name_of(value, major_names);
}
std::string_view to_string(Order value) {
  return name_of(value, order_names);
}
std::string_view to_string(KernelFamily value) {
  return name_of(value, family_names);
}

template <>
DType from_string(std::string_view name) {
  return find<DType>("dtype", name, dtype_names, ErrorCode::invalid_type);
}
template <>
Precision from_string(std::string_view name) {
  return find<Precision>("precision", name, precision_names);
}
template <>
SplitKMode from_string(std::string_view name) {
  return find<SplitKMode>("split_k_mode", name, split_k_mode_names);
}
template <>
Activation from_string(std::string_view name) {
  return find<Activation>("activation", name, activation_names);
}
template <>
Bias from_string(std::string_view name) {
  return find<Bias>("bias", name, bias_names);
}
template <>
Scaling from_string(std::string_view name) {
  return find<Scaling>("scaling", name, scaling_names);
}
template <>
Grouping from_string(std::string_view name) {
  return find<Grouping>("grouping", name, grouping_names);
}
template <>
GroupBounds from_string(std::string_view name) {
  return find<GroupBounds>("bounds", name, bounds_names);
}
template <>
Conv from_string(std::string_view name) {
  return find<Conv>("kind", name, conv_names);
}
template <>
Division from_string(std::string_view name) {
  return find<Division>("division", name, division_names);
}
template <>
Granularity from_string(std::string_view name) {
  return find<Granularity>("granularity", name, granularity_names);
}
template <>
Major from_string(std::string_view name) {
  return find<Major>("scale_major", name, major_names);
}
template <>
Order from_string(std::string_view name) {
  return find<Order>("order", name, order_names);
}
template <>
KernelFamily from_string(std::string_view name) {
  return find<KernelFamily>("kernel", name, family_names);
}

}  // namespace cleave

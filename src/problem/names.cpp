#include "cleave/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/enumerators.h"
#include "base/refuse.h"
#include "cleave/core/routing.h"

namespace cleave {
namespace {

/// Enumerators are their own names, with these exceptions.
template <class Enum>
constexpr auto kNames = [] {
  auto names = enumerators<Enum>;
  for (std::string_view& name : names) {
    name.remove_prefix(name.rfind(':') + 1);
    if (name == "automatic") name = "auto";
    if (name == "gelu_erf") name = "gelu";
  }
  return names;
}();
template <>
constexpr auto kNames<DType> = [] {
  auto names = enumerators<DType>;
  for (size_t i = 0; i < names.size(); ++i) names[i] = info_of(DType(i)).name;
  return names;
}();
template <>
constexpr std::array<std::string_view, 4> kNames<Grouping> = {"none", "m", "n", "k"};

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

/// Words of other libraries, which say something else than the name that they are spelled like: "fp32" is not tf32.
template <class Enum>
constexpr std::array<std::pair<std::string_view, Enum>, 0> kForeign = {};
template <>
constexpr std::array<std::pair<std::string_view, Precision>, 3> kForeign<Precision> = {
    {{"fp32", Precision::ieee}, {"float32", Precision::ieee}, {"highest", Precision::ieee}}};
template <>
constexpr std::array<std::pair<std::string_view, KernelFamily>, 4> kForeign<KernelFamily> = {
    {{"sm80", KernelFamily::portable},
     {"sm86", KernelFamily::portable},
     {"sm89", KernelFamily::portable},
     {"hopper", KernelFamily::sm90}}};
template <>
constexpr std::array<std::pair<std::string_view, Activation>, 1> kForeign<Activation> = {{{"swish", Activation::silu}}};

std::string did_you_mean(std::string_view name) {
  return fmt::format(". Did you mean \"{}\"?", name);
}

/// `. Did you mean "serial"?`, or nothing where no name is near.
template <class Enum>
std::string guess(std::string_view name, std::span<const std::string_view> names) {
  constexpr size_t kLongest = 32;
  if (name.size() > kLongest) return {};
  for (const auto& [word, meant] : kForeign<Enum>)
    if (lower(name) == word) return did_you_mean(to_string(meant));
  std::string_view closest;
  size_t distance = 2 + name.size() / 4;  // from there on, it is no typing mistake
  for (const std::string_view candidate : names) {
    const size_t d = edit_distance(lower(name), candidate);
    if (d < distance) closest = candidate, distance = d;
  }
  return closest.empty() ? std::string() : did_you_mean(closest);
}

/// Enumerations, and what users call them.
#define CLEAVE_NAMED_ENUMERATIONS(X) \
  X(DType, "dtype")                  \
  X(Precision, "precision")          \
  X(SplitKMode, "split_k_mode")      \
  X(Activation, "activation")        \
  X(Gates, "gates")                  \
  X(Bias, "bias")                    \
  X(Scaling, "scaling")              \
  X(Grouping, "grouping")            \
  X(GroupBounds, "bounds")           \
  X(Conv, "kind")                    \
  X(Division, "division")            \
  X(Granularity, "granularity")      \
  X(Norm, "norm")                    \
  X(WeightFormat, "format")          \
  X(Major, "scale_major")            \
  X(Order, "order")                  \
  X(ScoringFunc, "scoring_func")     \
  X(GroupScore, "group_score")       \
  X(KernelFamily, "kernel")

template <class Enum>
constexpr const char* kArgument = nullptr;
#define CLEAVE_ARGUMENT(Enum, argument) \
  template <>                           \
  constexpr const char* kArgument<Enum> = argument;
CLEAVE_NAMED_ENUMERATIONS(CLEAVE_ARGUMENT)

}  // namespace

template <class Enum>
  requires std::is_enum_v<Enum>
std::string_view to_string(Enum value) {
  constexpr auto& names = kNames<Enum>;
  return size_t(value) < names.size() ? names[size_t(value)] : "unknown";
}

template <class Enum>
Enum from_string(std::string_view name, std::string_view given_as) {
  constexpr auto& names = kNames<Enum>;
  const auto found = std::ranges::find(names, name);
  if (found != names.end()) return Enum(found - names.begin());
  // Only problems that are no convolutions have none of its kinds, and nobody asks for them by name.
  constexpr auto offered = std::span(names).subspan(std::is_same_v<Enum, Conv> ? 1 : 0);
  constexpr bool is_type = std::is_same_v<Enum, DType>;
  refuse(is_type ? ErrorCode::invalid_type : ErrorCode::invalid_argument, "{} is \"{}\"; it must be one of {}{}",
         given_as.empty() ? kArgument<Enum> : given_as, name, fmt::join(offered, ", "), guess<Enum>(name, offered));
}

#define CLEAVE_INSTANTIATE(Enum, argument)               \
  template std::string_view to_string<Enum>(Enum value); \
  template Enum from_string<Enum>(std::string_view name, std::string_view given_as);
CLEAVE_NAMED_ENUMERATIONS(CLEAVE_INSTANTIATE)

}  // namespace cleave

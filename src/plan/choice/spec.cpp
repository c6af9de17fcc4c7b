#include "plan/choice/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "cleave/error.h"
#include "cleave/names.h"

namespace cleave {
namespace {

struct Flag {
  const char* word;
  bool Spec::* member;
};
constexpr Flag kFlags[] = {
    {"transposed", &Spec::transposed}, {"pingpong", &Spec::pingpong},     {"side_by_side", &Spec::fuses_classes},
    {"gather", &Spec::gather},         {"half_lines", &Spec::half_lines}, {"narrow", &Spec::narrow},
    {"product", &Spec::product},       {"by_group", &Spec::by_group},     {"apart", &Spec::apart},
    {"halves", &Spec::halves},         {"at_once", &Spec::at_once}};

}  // namespace

std::string to_string(const Spec& s) {
  std::string text = fmt::format("{} {}x{}", to_string(s.family), s.tile_m, s.tile_n);
  for (const Flag& flag : kFlags) {
    if (s.*flag.member) text += fmt::format(" {}", flag.word);
  }
  if (s.columns > 0) text += fmt::format(" columns {}", s.columns);
  if (s.ahead > 0) text += fmt::format(" ahead {}", s.ahead);
  if (s.multicast_m * s.multicast_n > 1) text += fmt::format(" multicast {}x{}", s.multicast_m, s.multicast_n);
  if (s.split != SplitKMode::none) text += fmt::format(" {} {}", to_string(s.split), s.slices);
  const bool split = s.split != SplitKMode::none;
  if (s.in_turn) text += fmt::format(" in_turn {}", split ? s.cluster_k : s.slices);
  if (!s.in_turn && s.cluster_k > 1 && s.split == SplitKMode::parallel)
    text += fmt::format(" clusters {}", s.cluster_k);
  return text;
}

std::optional<Spec> parse_spec(std::string_view text) {
  std::istringstream words{std::string(text)};
  const auto pair = [&](uint32_t& x, uint32_t& y) {
    char by = 0;
    return bool(words >> x >> by >> y) && by == 'x';
  };
  Spec spec;
  std::string word;
  try {
    if (!(words >> word)) return std::nullopt;
    spec.family = from_string<KernelFamily>(word);
    if (!pair(spec.tile_m, spec.tile_n)) return std::nullopt;
    while (words >> word) {
      const auto is_it = [&](const Flag& flag) { return word == flag.word; };
      if (const auto flag = std::ranges::find_if(kFlags, is_it); flag != std::end(kFlags)) {
        spec.*flag->member = true;
      } else if (word == "columns") {
        if (!(words >> spec.columns)) return std::nullopt;
      } else if (word == "ahead") {
        if (!(words >> spec.ahead)) return std::nullopt;
      } else if (word == "multicast") {
        if (!pair(spec.multicast_m, spec.multicast_n)) return std::nullopt;
      } else if (word == "in_turn") {
        spec.in_turn = true;
        if (!(words >> (spec.split == SplitKMode::none ? spec.slices : spec.cluster_k))) return std::nullopt;
      } else if (word == "clusters") {
        if (!(words >> spec.cluster_k)) return std::nullopt;
      } else {
        spec.split = from_string<SplitKMode>(word);
        if (!(words >> spec.slices)) return std::nullopt;
      }
    }
  } catch (const Error&) {
    return std::nullopt;
  }
  return spec;
}

}  // namespace cleave

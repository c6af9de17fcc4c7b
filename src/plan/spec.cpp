#include "plan/spec.h"

#include <fmt/format.h>

#include <sstream>

#include "cleave/error.h"
#include "cleave/names.h"

namespace cleave {

std::string to_string(const Spec& s) {
  std::string text = fmt::format("{} {}x{}", to_string(s.family), s.tile_m, s.tile_n);
  if (s.transposed) text += " transposed";
  if (s.pingpong) text += " pingpong";
  if (s.fuses_classes) text += " side_by_side";
  if (s.gather) text += " gather";
  if (s.multicast_m * s.multicast_n > 1) text += fmt::format(" multicast {}x{}", s.multicast_m, s.multicast_n);
  if (s.split != SplitKMode::none) text += fmt::format(" {} {}", to_string(s.split), s.slices);
  if (s.cluster_k > 1 && s.split == SplitKMode::parallel) text += fmt::format(" clusters {}", s.cluster_k);
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
      if (word == "transposed") {
        spec.transposed = true;
      } else if (word == "pingpong") {
        spec.pingpong = true;
      } else if (word == "side_by_side") {
        spec.fuses_classes = true;
      } else if (word == "gather") {
        spec.gather = true;
      } else if (word == "multicast") {
        if (!pair(spec.multicast_m, spec.multicast_n)) return std::nullopt;
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

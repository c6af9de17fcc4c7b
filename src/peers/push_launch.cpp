#include "peers/push_launch.h"

#include "cleave/core/math.h"
#include "jit/translation_unit.h"

namespace cleave {
namespace {

/// A CTA has these at least: a piece of each thread.
constexpr size_t kLeastBytes = PushRowsConfig::threads * 16;

uint32_t piece_of(const Group::Rows& part) {
  const uint64_t addresses = reinterpret_cast<uintptr_t>(part.own) | reinterpret_cast<uintptr_t>(part.out);
  const uint64_t bits = part.bytes | part.share | addresses;
  return bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : 1;
}

uint32_t ctas_of(std::span<const Group::Rows> parts) {
  size_t most = 1;
  for (const Group::Rows& part : parts) most = max_of(most, part.share);
  return uint32_t(min_of(ceil_div(most, kLeastBytes), size_t(kMostReadingCtas)));
}

}  // namespace

int number_of(const PushRowsConfig& config) {
  const auto size = [](uint32_t bytes) { return bytes == 16 ? 0 : bytes == 4 ? 1 : bytes == 1 ? 2 : 3; };
  return (size(config.bytes) * 4 + size(config.second_bytes)) * 2 + config.keeps;
}

PushRowsConfig push_config(std::span<const Group::Rows> parts) {
  return {.bytes = piece_of(parts[0]),
          .second_bytes = parts.size() > 1 ? piece_of(parts[1]) : 0,
          .keeps = parts[0].out != nullptr};
}

PushRowsParams push_params(std::span<const Group::Rows> parts, int ranks) {
  PushRowsParams params;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Group::Rows& part = parts[i];
    params.parts[i] = {.own = static_cast<const char*>(part.own),
                       .own_bytes = part.bytes,
                       .share_bytes = part.share,
                       .offset = Group::reserved(ranks) + part.place,
                       .chunk = round_up(ceil_div(part.share, size_t(ctas_of(parts))), size_t(16)),
                       .out = static_cast<char*>(part.out)};
  }
  return params;
}

LaunchShape push_shape(std::span<const Group::Rows> parts) {
  return {.grid = {ctas_of(parts), 1, 1}, .block = {PushRowsConfig::threads, 1, 1}, .programmatic = true};
}

std::string translation_unit(const PushRowsConfig& config) {
  return translation_unit({
      .folder = "peers",
      .name = "push_rows",
      .config = "PushRowsConfig",
      .members = CLEAVE_PRINT_MEMBERS(config, bytes, second_bytes, keeps),
      .launch_bounds = "config.threads, 4",
      .entry = push_entry,
      .params = "PushRowsParams",
  });
}

}  // namespace cleave

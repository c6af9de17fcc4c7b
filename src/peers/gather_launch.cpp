#include "peers/gather_launch.h"

#include "cleave/core/math.h"
#include "jit/translation_unit.h"

namespace cleave {

GatherConfig gather_config(size_t bytes, const void* out) {
  static_assert(kMostRanks <= 32);
  if (bytes == 0) return {.threads = 32};
  const uint64_t bits = bytes | reinterpret_cast<uintptr_t>(out);
  return {.bytes = bits % 16 == 0 ? 16u : bits % 4 == 0 ? 4u : 1u};
}

GatherParams gather_params(const GatherConfig& config, int ranks, uint64_t offset, size_t bytes, void* out) {
  const auto pieces = uint32_t(bytes / config.bytes);
  return {.pieces = pieces * uint32_t(ranks), .rank = FastDivmod(max_of(pieces, 1u)), .offset = offset, .out = out};
}

LaunchShape gather_shape(int ranks, size_t bytes) {
  const GatherConfig config = gather_config(bytes, nullptr);
  const size_t pieces = max_of(bytes / config.bytes * size_t(ranks), size_t(1));
  const auto ctas = uint32_t(min_of(ceil_div(pieces, size_t(config.threads)), size_t(kMostReadingCtas)));
  return {.grid = {ctas, 1, 1}, .block = {config.threads, 1, 1}, .programmatic = true};
}

std::string translation_unit(const GatherConfig& config) {
  return translation_unit({
      .folder = "peers",
      .name = "gather",
      .config = "GatherConfig",
      .members = CLEAVE_PRINT_MEMBERS(config, bytes, threads),
      .launch_bounds = "config.threads, 4",
      .entry = gather_entry,
      .params = "GatherParams",
  });
}

}  // namespace cleave

// Which kernels to compile where all of them would take too long.
#pragma once

#include <algorithm>
#include <map>
#include <queue>
#include <sstream>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cleave/config/gemm_config.h"
#include "jit/source.h"

namespace cleave {

/// What `config` says beside its tile, and beside the loads that CTAs share and the order in which D is
/// stored, which do not depend on the rest; as text.
inline std::string features(GemmConfig config) {
  const GemmConfig usual;
  config.tile.m = usual.tile.m;
  config.tile.n = usual.tile.n;
  config.tile.k = usual.tile.k;
  config.tile.stages = usual.tile.stages;
  config.warps = usual.warps;
  config.cluster.multicast_m = usual.cluster.multicast_m;
  config.cluster.multicast_n = usual.cluster.multicast_n;
  config.epilogue.order = usual.epilogue.order;
  config.store.chunks = usual.store.chunks;
  return gemm_source(config);
}

/// The accumulators of a thread, which fill its registers before anything else does.
inline uint32_t accumulators(const GemmConfig& config) {
  return config.tile.m * config.tile.n / math_threads(config);
}

/// A tile, whose warps are, and the family of types that it multiplies: operands as wide as each other
/// need the same registers, and sums that are promoted need twice as many.
inline auto tile_and_types(const GemmConfig& config) {
  return std::tuple(config.family, config.tile.m, config.tile.n, config.warps.consumers, config.warps.pingpong,
                    config.warps.m, config.warps.n, size_of(config.operands.a), config.scales.promote);
}

/// For each configuration, every two of its settings, as a number for both. A tile's sizes are none of
/// them: there are so many that a sample with each of them beside all else would be of little but tiles.
inline std::vector<std::vector<uint32_t>> settings_by_two(const std::vector<GemmConfig>& configs) {
  std::map<std::string, uint32_t> numbers;
  std::vector<std::vector<uint32_t>> all;
  for (GemmConfig config : configs) {
    config.tile = {};
    config.store.chunks = {};  // follows from the rest
    std::vector<uint32_t> settings;
    std::istringstream source(gemm_source(config));
    std::string subject;
    for (std::string line; std::getline(source, line);) {
      if (!line.starts_with("    ") || line.find('=') == line.npos) continue;
      if (line.ends_with('{')) {
        subject = line;
      } else {
        const auto number = uint32_t(numbers.size());
        settings.push_back(numbers.try_emplace(subject + line, number).first->second);
      }
    }
    std::vector<uint32_t>& pairs = all.emplace_back();
    for (size_t i = 0; i < settings.size(); ++i) {
      for (size_t j = 0; j < i; ++j) pairs.push_back(settings[i] << 16 | settings[j]);
    }
  }
  return all;
}

/// A sample of `configs` that shows what each feature does beside each other one, and where registers
/// are scarcest: it has
/// - for each combination of features one of the tiles with the most accumulators;
/// - each tile with each family of types;
/// - every two settings beside the tile that some configuration has together: a type and a way to split,
///   a way to split and an activation, ping-pong and a group.
/// It can miss what goes wrong on some tile alone, and neither with its types nor on the largest one.
inline std::vector<GemmConfig> kernel_sample(const std::vector<GemmConfig>& configs) {
  // What each configuration shows, as numbers: those of two settings, then those of the rest.
  std::vector<std::vector<uint32_t>> shows = settings_by_two(configs);
  uint32_t next = 0xffffffff;
  const auto number_in = [&next](auto& numbers, const auto& key) {
    const auto [entry, is_new] = numbers.try_emplace(key, next);
    if (is_new) --next;
    return entry->second;
  };
  std::map<std::string, uint32_t> most, combinations;
  std::map<decltype(tile_and_types({})), uint32_t> tiles;
  for (const GemmConfig& config : configs) {
    uint32_t& sums = most[features(config)];
    sums = std::max(sums, accumulators(config));
  }
  for (size_t i = 0; i < configs.size(); ++i) {
    const std::string combination = features(configs[i]);
    if (accumulators(configs[i]) == most[combination]) shows[i].push_back(number_in(combinations, combination));
    shows[i].push_back(number_in(tiles, tile_and_types(configs[i])));
  }

  std::vector<GemmConfig> sample;
  std::unordered_set<uint32_t> shown;
  const auto adds = [&](size_t i) {
    return std::ranges::count_if(shows[i], [&](uint32_t number) { return !shown.contains(number); });
  };
  // Next is whichever adds most. What one adds only shrinks, so that an old count is a bound.
  std::priority_queue<std::pair<ptrdiff_t, size_t>> queue;
  for (size_t i = 0; i < configs.size(); ++i) queue.emplace(adds(i), i);
  while (!queue.empty()) {
    const size_t i = queue.top().second;
    queue.pop();
    const ptrdiff_t count = adds(i);
    if (count == 0) continue;
    if (!queue.empty() && count < queue.top().first) {
      queue.emplace(count, i);
    } else {
      sample.push_back(configs[i]);
      shown.insert(shows[i].begin(), shows[i].end());
    }
  }
  return sample;
}

}  // namespace cleave

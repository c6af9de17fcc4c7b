// Which kernels to compile where all of them would take too long.
#pragma once

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cleave/config/gemm_config.h"
#include "cleave/config/threads.h"
#include "jit/source.h"

namespace cleave {

/// The accumulators of a thread, which fill its registers before anything else does.
inline uint32_t accumulators(const GemmConfig& config) {
  return config.tile.m * config.tile.n / math_threads(config);
}

/// A tile: its sizes and its warps.
inline auto tile_of(const GemmConfig& config) {
  return std::tuple(config.family, config.tile.m, config.warps.consumers, config.warps.pingpong, config.warps.m,
                    config.warps.n, config.tile.n);
}

/// The tiles that differ from this one's in N alone, with the family of types that it multiplies: operands as wide as
/// each other need the same registers, and sums that are promoted need twice as many. The widest of these tiles has the
/// most accumulators.
inline auto tiles_and_types(const GemmConfig& config) {
  return std::tuple(config.family, config.tile.m, config.warps.consumers, config.warps.pingpong, config.warps.m,
                    config.warps.n, size_of(config.operands.a), config.scales.promote);
}

/// The widest of each of those.
inline auto widest_tiles(const std::vector<GemmConfig>& configs) {
  std::map<decltype(tiles_and_types({})), uint32_t> widest;
  for (const GemmConfig& config : configs) {
    uint32_t& n = widest[tiles_and_types(config)];
    n = std::max(n, config.tile.n);
  }
  return widest;
}

/// Its settings as lines of the source, each with its subject's. A tile's sizes and warps are none of them: there are
/// so many that a sample with each of them beside all else would be of little but tiles.
inline std::vector<std::string> settings_of(GemmConfig config) {
  config.tile = {};
  config.warps = {.pingpong = config.warps.pingpong};
  config.store.chunks = {};  // follows from the rest
  std::vector<std::string> settings;
  std::istringstream source(gemm_source(config));
  std::string subject;
  for (std::string line; std::getline(source, line);) {
    if (!line.starts_with("    ") || line.find('=') == line.npos) continue;
    if (line.ends_with('{')) {
      subject = line;
    } else {
      settings.push_back(subject + line);
    }
  }
  return settings;
}

/// The value of each setting that most configurations have: what has another is special for it.
inline std::set<std::string> common_settings(const std::vector<GemmConfig>& configs) {
  std::map<std::string, std::map<std::string, size_t>> counts;
  for (const GemmConfig& config : configs) {
    for (const std::string& setting : settings_of(config)) ++counts[setting.substr(0, setting.rfind('='))][setting];
  }
  std::set<std::string> common;
  for (const auto& [name, values] : counts)
    common.insert(std::ranges::max_element(values, {}, [](const auto& value) { return value.second; })->first);
  return common;
}

/// For each configuration, every two of its settings that are not `common`, as a number for both.
inline std::vector<std::vector<uint32_t>> settings_by_two(const std::vector<GemmConfig>& configs,
                                                          const std::set<std::string>& common) {
  std::map<std::string, uint32_t> numbers;
  std::vector<std::vector<uint32_t>> all;
  for (const GemmConfig& config : configs) {
    std::vector<uint32_t> settings;
    for (const std::string& setting : settings_of(config)) {
      const auto number = uint32_t(numbers.size());
      if (!common.contains(setting)) settings.push_back(numbers.try_emplace(setting, number).first->second);
    }
    std::vector<uint32_t>& pairs = all.emplace_back();
    for (size_t i = 0; i < settings.size(); ++i) {
      for (size_t j = 0; j <= i; ++j) pairs.push_back(settings[i] << 16 | settings[j]);  // with itself: alone
    }
  }
  return all;
}

/// The most accumulators that a configuration with both settings has, for every two.
inline std::map<uint32_t, uint32_t> most_accumulators(const std::vector<GemmConfig>& configs,
                                                      const std::vector<std::vector<uint32_t>>& pairs) {
  std::map<uint32_t, uint32_t> most;
  for (size_t i = 0; i < configs.size(); ++i) {
    for (const uint32_t pair : pairs[i]) most[pair] = std::max(most[pair], accumulators(configs[i]));
  }
  return most;
}

/// A sample of `configs` that shows what each setting does beside each other one where registers are scarcest:
/// - every two settings that some configuration has together and few have, on the largest of the tiles that have both:
///   a type and a way to split, a way to split and an activation, ping-pong and a group;
/// - each tile, and of those that differ in N alone the widest with each family of types.
/// It can miss what takes three settings, or two on a smaller tile alone: `make test-kernels` compiles all of them.
inline std::vector<GemmConfig> kernel_sample(const std::vector<GemmConfig>& configs) {
  // What each configuration shows, as numbers: those of two settings, whose upper halves are small, then the tiles'.
  constexpr uint32_t kTiles = 0xfffe0000, kTilesOfTypes = 0xffff0000;
  std::vector<std::vector<uint32_t>> shows = settings_by_two(configs, common_settings(configs));
  const std::map<uint32_t, uint32_t> most = most_accumulators(configs, shows);
  const auto widest = widest_tiles(configs);
  std::map<decltype(tile_of({})), uint32_t> tiles;
  for (size_t i = 0; i < configs.size(); ++i) {
    std::erase_if(shows[i], [&](uint32_t pair) { return accumulators(configs[i]) < most.at(pair); });
    const auto number = kTiles + uint32_t(tiles.size());
    shows[i].push_back(tiles.try_emplace(tile_of(configs[i]), number).first->second);
    const auto of_types = widest.find(tiles_and_types(configs[i]));
    if (of_types->second == configs[i].tile.n)
      shows[i].push_back(kTilesOfTypes + uint32_t(std::distance(widest.begin(), of_types)));
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

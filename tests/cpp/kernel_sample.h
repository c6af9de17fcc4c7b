// Which kernels to compile where all of them would take too long.
#pragma once

#include <algorithm>
#include <map>
#include <queue>
#include <sstream>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "cleave/config/gemm_config.h"
#include "jit/source.h"

namespace cleave {

/// What `config` says beside its tile, as text.
inline std::string features(GemmConfig config) {
  const GemmConfig usual;
  config.tile.m = usual.tile.m;
  config.tile.n = usual.tile.n;
  config.tile.k = usual.tile.k;
  config.tile.stages = usual.tile.stages;
  config.warps.consumers = usual.warps.consumers;
  config.warps.pingpong = usual.warps.pingpong;
  config.warps.m = usual.warps.m;
  config.warps.n = usual.warps.n;
  config.store.chunks = usual.store.chunks;
  return gemm_source(config);
}

/// The accumulators of a thread, which fill its registers before anything else does.
inline uint32_t accumulators(const GemmConfig& config) {
  return config.tile.m * config.tile.n / math_threads(config);
}

/// For each configuration, every two members with their values, as a number for both.
inline std::vector<std::vector<uint32_t>> settings_by_two(const std::vector<GemmConfig>& configs) {
  std::map<std::string, uint32_t> numbers;
  std::vector<std::vector<uint32_t>> all;
  for (const GemmConfig& config : configs) {
    std::vector<uint32_t> settings;
    std::istringstream source(gemm_source(config));
    std::string subject;
    for (std::string line; std::getline(source, line);) {
      if (!line.starts_with("    ") || line.find('=') == line.npos) continue;
      // How many stages there are follows from the rest, and no instruction from that.
      if (line.find(".stages") != line.npos || line.find(".chunks") != line.npos) continue;
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
/// - for each combination of features the tile with the most accumulators;
/// - every two settings that some configuration has together: a tile and a type, a type and a way to
///   split, a way to split and an activation. Three settings that go wrong together, and no two of
///   them with others, on a tile that is not the largest, are what it can miss.
inline std::vector<GemmConfig> kernel_sample(const std::vector<GemmConfig>& configs) {
  const std::vector<std::vector<uint32_t>> pairs = settings_by_two(configs);
  std::vector<GemmConfig> sample;
  std::unordered_set<uint32_t> covered;
  const auto take = [&](size_t i) {
    sample.push_back(configs[i]);
    covered.insert(pairs[i].begin(), pairs[i].end());
  };
  const auto adds = [&](size_t i) {
    return std::count_if(pairs[i].begin(), pairs[i].end(), [&](uint32_t pair) { return !covered.contains(pair); });
  };

  const auto size = [&](size_t i) {
    return std::pair(accumulators(configs[i]), configs[i].tile.m * configs[i].tile.n);
  };
  std::map<std::string, size_t> largest;
  for (size_t i = 0; i < configs.size(); ++i) {
    size_t& best = largest.try_emplace(features(configs[i]), i).first->second;
    if (size(i) > size(best)) best = i;
  }
  for (const auto& [_, i] : largest) take(i);

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
      take(i);
    }
  }
  return sample;
}

}  // namespace cleave

// A warp's sum (core/sum_over_warp.h) on the host.
#pragma once

#include <array>
#include <cstdint>

namespace cleave {

/// In the kernel's order: the i-th value is lane i % 32's.
class WarpSum {
 public:
  static constexpr uint32_t kLanes = 32;

  float& lane(uint32_t i) { return lanes_[i % kLanes]; }
  void add(uint32_t i, float value) { lane(i) += value; }

  float total() const {
    auto sums = lanes_;
    for (uint32_t distance = kLanes / 2; distance > 0; distance /= 2) {
      for (uint32_t lane = 0; lane < distance; ++lane) sums[lane] += sums[lane + distance];
    }
    return sums[0];
  }

 private:
  std::array<float, kLanes> lanes_ = {};
};

}  // namespace cleave

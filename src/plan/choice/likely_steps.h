// How many tiles a product of groups has, which only the GPU knows: what the host can tell of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cleave {

/// Values of which one is as likely as another.
class Likely {
 public:
  static constexpr size_t kMost = 3;

  Likely() = default;
  explicit Likely(double value) : values_{value}, count_(1) {}
  explicit Likely(const std::array<double, kMost>& values) : values_(values), count_(values.size()) {}

  std::span<const double> values() const { return {values_.data(), count_}; }

  template <class Of>
  double mean_of(const Of& of) const {
    double sum = 0;
    for (const double value : values()) sum += of(value);
    return sum / double(count_);
  }

  double mean() const {
    return mean_of([](double value) { return value; });
  }

  Likely times(double factor) const {
    Likely result = *this;
    for (double& value : result.values_) value *= factor;
    return result;
  }

 private:
  std::array<double, kMost> values_{};
  size_t count_ = 0;
};

/// Steps of `step` elements that cover each of `groups` groups of `total` elements, all together: if they are as long
/// as chance makes them where each element is as likely to be of one as of another; if they differ by up to 0.3 of
/// their mean; and if the r-th longest has 1 / r of the longest one's, as popularity often goes. What that brought:
/// docs/notes/2026-11-choice.md. `spacing`: groups begin at multiples of it, and `total` has what lies between them: of
/// steps that divide it there are as many as fill the total, whatever the groups' lengths.
Likely likely_steps(int64_t total, int64_t groups, uint32_t step, int64_t spacing = 1);

}  // namespace cleave

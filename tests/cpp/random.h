// Draws for tests: the same ones in every run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>

namespace cleave {

class Random {
 public:
  explicit Random(uint32_t seed) : random_(seed) {}
  int64_t number(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  bool coin() { return number(0, 1) == 1; }
  float real() { return std::uniform_real_distribution<float>(-1, 1)(random_); }
  template <class T, size_t n>
  T pick(const T (&from)[n]) {
    return from[number(0, n - 1)];
  }
  template <class T, size_t n>
  T pick(const std::array<T, n>& from) {
    return from[number(0, n - 1)];
  }

 private:
  std::mt19937 random_;
};

}  // namespace cleave

// Arithmetic of numbers that nobody has judged yet: what overflows stays at the end of int64 that it
// passed, where every rule about sizes refuses it.
#pragma once

#include <cstdint>
#include <limits>

namespace cleave {

inline constexpr int64_t saturated(bool negative) {
  return negative ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
}

inline constexpr int64_t saturating_sum(int64_t x, int64_t y) {
  int64_t sum = 0;
  return __builtin_add_overflow(x, y, &sum) ? saturated(x < 0) : sum;
}

inline constexpr int64_t saturating_product(int64_t x, int64_t y) {
  int64_t product = 0;
  return __builtin_mul_overflow(x, y, &product) ? saturated((x < 0) != (y < 0)) : product;
}

}  // namespace cleave

// Arithmetic of numbers that nobody has judged yet: what overflows stays at the end of int64 that it
// passed, where every rule about sizes refuses it.
#pragma once

#include "cleave/core/macros.h"

namespace cleave {

inline constexpr int64_t kMostInt64 = 0x7fffffffffffffff;

constexpr int64_t saturated(bool negative) {
  return negative ? -kMostInt64 - 1 : kMostInt64;
}

constexpr int64_t saturating_sum(int64_t x, int64_t y) {
  int64_t sum = 0;
  return __builtin_add_overflow(x, y, &sum) ? saturated(x < 0) : sum;
}

constexpr int64_t saturating_product(int64_t x, int64_t y) {
  int64_t product = 0;
  return __builtin_mul_overflow(x, y, &product) ? saturated((x < 0) != (y < 0)) : product;
}

}  // namespace cleave

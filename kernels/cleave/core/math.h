// Small integer maths, constexpr, host and device.
#pragma once

#include "cleave/core/macros.h"

namespace cleave {

template <class T>
CLEAVE_HD constexpr T min_of(T a, T b) {
  return a < b ? a : b;
}

template <class T>
CLEAVE_HD constexpr T max_of(T a, T b) {
  return a > b ? a : b;
}

template <class T>
CLEAVE_HD constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

template <class T>
CLEAVE_HD constexpr T round_up(T a, T multiple) {
  return ceil_div(a, multiple) * multiple;
}

CLEAVE_HD constexpr uint32_t greatest_common_divisor(uint32_t a, uint32_t b) {
  return b == 0 ? a : greatest_common_divisor(b, a % b);
}

}  // namespace cleave

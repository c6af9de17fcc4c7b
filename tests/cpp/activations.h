// The activations in double: what those of the kernels and of the CPU backend should be.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "base/enumerators.h"
#include "cleave/core/enums.h"

namespace cleave {

/// Those of one value.
inline constexpr auto kElementwise = [] {
  std::array<Activation, values_of<Activation>.size() - 2> all{};
  std::ranges::remove_copy_if(values_of<Activation>, all.begin(), [](Activation activation) {
    return activation == Activation::swiglu || activation == Activation::swiglu_interleaved;
  });
  return all;
}();

inline double activated(Activation kind, double x) {
  switch (kind) {
    case Activation::none:
      return x;
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::relu2:
      return std::pow(std::max(x, 0.0), 2);
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * std::pow(x, 3))));
    case Activation::gelu_erf:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::swiglu:  // joins two values
    case Activation::swiglu_interleaved:
      break;
  }
  return NAN;
}

}  // namespace cleave

// Division by a divisor known to the host, as one multiply-high and a shift on the device.
//
// Granlund & Montgomery, "Division by Invariant Integers using Multiplication" (PLDI 1994),
// restricted to dividends below 2^31, where a 32-bit magic number suffices and no correction step
// is needed.
#pragma once

#include "cleave/core/macros.h"

namespace cleave {

struct FastDivmod {
  uint32_t divisor = 1;
  uint32_t multiplier = 0;
  uint32_t shift = 0;

  FastDivmod() = default;

  /// `d` in [1, 2^31).
  CLEAVE_HD constexpr explicit FastDivmod(uint32_t d) : divisor(d) {
    if (d == 1) return;  // multiplier 0 marks the identity: no 32-bit magic number exists for 1
    uint32_t log2_ceil = 0;
    while ((uint64_t(1) << log2_ceil) < d) ++log2_ceil;
    const uint32_t power = 31 + log2_ceil;
    multiplier = uint32_t(((uint64_t(1) << power) + d - 1) / d);
    shift = power - 32;
  }

  /// `n` in [0, 2^31).
  CLEAVE_HD constexpr uint32_t quotient(uint32_t n) const {
    if (multiplier == 0) return n;
#if defined(__CUDA_ARCH__)
    return __umulhi(n, multiplier) >> shift;
#else
    return uint32_t((uint64_t(n) * multiplier) >> 32) >> shift;
#endif
  }

  CLEAVE_HD constexpr void divmod(uint32_t n, uint32_t& quotient_out, uint32_t& remainder) const {
    quotient_out = quotient(n);
    remainder = n - quotient_out * divisor;
  }
};

}  // namespace cleave

// Where the tensor cores look for an operand that is contiguous along M or N.
#pragma once

#include <cstdint>

namespace cleave {

/// The address of row `row` (of M, or column of N) at k `k` in an MN-major operand of 16-bit elements, as the PTX ISA
/// says for the canonical layouts: strips as wide as the swizzle, `leading` apart, of groups of 8 k's, `stride` apart;
/// bits 4.. of the address are XORed with bits 7.. .
inline uint32_t address_of(uint64_t descriptor, uint32_t row, uint32_t k) {
  const auto field = [&](int first) { return uint32_t(descriptor >> first & 0x3fff) * 16; };
  const uint32_t mode = uint32_t(descriptor >> 62), width = mode == 1 ? 128 : mode == 2 ? 64 : 32;
  const uint32_t byte = row * 2;
  const uint32_t linear = field(0) + byte / width * field(16) + k / 8 * field(32) + k % 8 * width + byte % width;
  return linear ^ (linear >> 7 & (width / 16 - 1)) << 4;
}

}  // namespace cleave

// Bytes of registers in another order.
#pragma once

#include "cleave/core/macros.h"

namespace cleave {

/// Four of the bytes of `low` and `high`, numbered from 0 on: byte i is the one that the selector's half byte i says in
/// its lower three bits, or, where its highest is set, eight times that one's sign.
CLEAVE_HD uint32_t pick_bytes(uint32_t low, uint32_t high, uint32_t selector) {
#if defined(__CUDA_ARCH__)
  uint32_t picked;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(picked) : "r"(low), "r"(high), "r"(selector));
  return picked;
#else
  const uint64_t both = uint64_t(high) << 32 | low;
  uint32_t picked = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t which = selector >> 4 * i & 15, byte = uint32_t(both >> 8 * (which & 7)) & 0xff;
    picked |= (which < 8 ? byte : byte >> 7 ? 0xffu : 0u) << 8 * i;
  }
  return picked;
#endif
}

}  // namespace cleave

// Arithmetic on two 16-bit floats in one register, each instruction for bfloat16 and float16. Subnormal numbers count.
#pragma once

#include "cleave/core/enums.h"

namespace cleave::ptx {

template <DType T>
CLEAVE_DEVICE uint32_t subtract_pair(uint32_t x, uint32_t y) {
  uint32_t d;
  if constexpr (T == DType::bf16) {
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y));
  } else {
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y));
  }
  return d;
}

template <DType T>
CLEAVE_DEVICE uint32_t multiply_pair(uint32_t x, uint32_t y) {
  uint32_t d;
  if constexpr (T == DType::bf16) {
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y));
  } else {
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y));
  }
  return d;
}

/// x * y + z, rounded once.
template <DType T>
CLEAVE_DEVICE uint32_t multiply_add_pair(uint32_t x, uint32_t y, uint32_t z) {
  uint32_t d;
  if constexpr (T == DType::bf16) {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(x), "r"(y), "r"(z));
  } else {
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(x), "r"(y), "r"(z));
  }
  return d;
}

/// Both halves the lower one of x.
CLEAVE_DEVICE uint32_t repeat_lower(uint32_t x) {
  return __byte_perm(x, 0, 0x1010);
}

}  // namespace cleave::ptx

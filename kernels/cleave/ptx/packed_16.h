// Arithmetic on two 16-bit floats in one register, each instruction for bfloat16 and float16. Subnormal numbers count.
// Before Hopper bfloat16 has a multiply-add alone.
#pragma once

#include "cleave/core/enums.h"

namespace cleave::ptx {

/// x & y | z, by one instruction: at most one of them may be a constant.
CLEAVE_DEVICE uint32_t and_or(uint32_t x, uint32_t y, uint32_t z) {
  uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(x), "r"(y), "r"(z));
  return d;
}

/// A constant that the compiler does not see through.
template <uint32_t Value>
CLEAVE_DEVICE uint32_t in_register() {
  uint32_t value;
  asm("mov.b32 %0, %1;" : "=r"(value) : "n"(Value));
  return value;
}

template <DType T>
CLEAVE_DEVICE uint32_t subtract_pair(uint32_t x, uint32_t y) {
  uint32_t d;
  if constexpr (T == DType::bf16) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(y), "r"(0xbf80bf80), "r"(x));
#else
    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y));
#endif
  } else {
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y));
  }
  return d;
}

template <DType T>
CLEAVE_DEVICE uint32_t multiply_pair(uint32_t x, uint32_t y) {
  uint32_t d;
  if constexpr (T == DType::bf16) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(x), "r"(y), "r"(0x80008000));
#else
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y));
#endif
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

/// Both halves the lower one of x. As a move of halves, not of bytes, it becomes a part of the arithmetic that follows.
CLEAVE_DEVICE uint32_t repeat_lower(uint32_t x) {
  uint32_t d;
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {low, low}; }" : "=r"(d) : "r"(x));
  return d;
}

/// And the upper one.
CLEAVE_DEVICE uint32_t repeat_upper(uint32_t x) {
  uint32_t d;
  asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {high, high}; }" : "=r"(d) : "r"(x));
  return d;
}

}  // namespace cleave::ptx

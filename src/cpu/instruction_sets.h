// Which vectors the processor has, and the system lets programs use.
//
// Not __builtin_cpu_supports: zig's compiler, which makes the wheels, has it say no to everything.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>

#include <cstdint>

namespace cleave::cpu {

struct InstructionSets {
  bool avx2_fma = false, avx512f = false;
};

inline InstructionSets instruction_sets() {
  uint32_t a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return {};
  const bool fma = c >> 12 & 1, asks_system = c >> 27 & 1;
  if (!asks_system || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return {};
  uint32_t saved, high;  // which registers the system keeps for each thread
  asm volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  const bool ymm = (saved & 0x06) == 0x06, zmm = (saved & 0xe6) == 0xe6;
  return {.avx2_fma = ymm && fma && (b >> 5 & 1), .avx512f = zmm && (b >> 16 & 1)};
}

}  // namespace cleave::cpu
#endif

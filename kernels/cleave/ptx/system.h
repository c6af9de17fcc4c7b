// Ordering between GPUs, and the host: system scope.
#pragma once

#include "cleave/core/macros.h"

namespace cleave::ptx {

CLEAVE_DEVICE uint64_t load_acquire_system(const uint64_t* p) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
  return value;
}

CLEAVE_DEVICE void store_release_system(uint64_t* p, uint64_t value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}

/// The GPU's clock, which SMs share; it steps by some 32.
CLEAVE_DEVICE uint64_t nanoseconds() {
  uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

}  // namespace cleave::ptx

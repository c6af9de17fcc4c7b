// Asynchronous copies from global to shared memory (sm_80 and later), one instruction each.
#pragma once

#include "cleave/core/macros.h"

namespace cleave::ptx {

/// Copies `Bytes` (4, 8 or 16) to shared memory, of which only the first `valid` are read; the rest
/// become zeros.
template <uint32_t Bytes>
CLEAVE_DEVICE void copy_async(uint32_t to, const void* from, uint32_t valid) {
  if constexpr (Bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(to), "l"(from), "r"(valid), "n"(Bytes)
                 : "memory");
  }
}

/// All of it or, unless `exists`, only zeros. It stays in L1, too.
template <uint32_t Bytes>
CLEAVE_DEVICE void copy_async_if(uint32_t to, const void* from, bool exists) {
  asm volatile(
      "{\n"
      ".reg .pred ignore;\n"
      "setp.eq.u32 ignore, %2, 0;\n"
      "cp.async.ca.shared.global [%0], [%1], %3, ignore;\n"
      "}" ::"r"(to),
      "l"(from), "r"(uint32_t(exists)), "n"(Bytes)
      : "memory");
}

CLEAVE_DEVICE void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// One arrival on `barrier` (counted when it was initialised) once this thread's copies are done.
CLEAVE_DEVICE void copy_async_arrive(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

template <int Pending>
CLEAVE_DEVICE void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

}  // namespace cleave::ptx

// Ordering between CTAs through global memory, between launches (programmatic dependent launch),
// and registers.
#pragma once

#include "cleave/core/macros.h"

namespace cleave::ptx {

CLEAVE_DEVICE uint32_t load_acquire(const uint32_t* p) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}

CLEAVE_DEVICE uint64_t load_acquire(const uint64_t* p) {
  uint64_t value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
  return value;
}

CLEAVE_DEVICE void store_release(uint32_t* p, uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}

CLEAVE_DEVICE void add_release(uint64_t* p, uint64_t value) {
  asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(p), "l"(value) : "memory");
}

CLEAVE_DEVICE uint32_t add_acquire_release(uint32_t* p, uint32_t value) {
  uint32_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(p), "r"(value) : "memory");
  return before;
}

CLEAVE_DEVICE uint64_t add_acquire_release(uint64_t* p, uint64_t value) {
  uint64_t before;
  asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(p), "l"(value) : "memory");
  return before;
}

/// Orders nothing, nor does or_relaxed: for words that guard no data.
CLEAVE_DEVICE uint64_t load_relaxed(const uint64_t* p) {
  uint64_t value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(p) : "memory");
  return value;
}

CLEAVE_DEVICE uint64_t or_relaxed(uint64_t* p, uint64_t bits) {
  uint64_t before;
  asm volatile("atom.relaxed.gpu.global.or.b64 %0, [%1], %2;" : "=l"(before) : "l"(p), "l"(bits) : "memory");
  return before;
}

/// Orders nothing: for counts that guard no data. By the first lane of a warp, which goes on and may look at the result
/// later: its number is added for ptxas, which would join what several lanes add of the same, and wait to deal it out.
CLEAVE_DEVICE uint64_t add_relaxed(uint64_t* p, uint64_t value) {
  uint64_t before;
  asm volatile(
      "{\n"
      ".reg .u32 lane;\n"
      ".reg .u64 value;\n"
      "mov.u32 lane, %%laneid;\n"
      "cvt.u64.u32 value, lane;\n"
      "add.u64 value, value, %2;\n"
      "atom.relaxed.gpu.global.add.u64 %0, [%1], value;\n"
      "}"
      : "=l"(before)
      : "l"(p), "l"(value)
      : "memory");
  return before;
}

/// `*p = desired` if it was `expected`; what it was.
CLEAVE_DEVICE uint64_t compare_exchange_acquire(uint64_t* p, uint64_t expected, uint64_t desired) {
  uint64_t before;
  asm volatile("atom.acquire.gpu.global.cas.b64 %0, [%1], %2, %3;"
               : "=l"(before)
               : "l"(p), "l"(expected), "l"(desired)
               : "memory");
  return before;
}

/// Ends the launch with an error, and with it all work of the process on this GPU.
CLEAVE_DEVICE void trap() {
  asm volatile("trap;");
}

/// Lets the next launch in the stream start its CTAs as soon as there is room. It still waits for
/// this one's results, in grid_dependency_wait.
CLEAVE_DEVICE void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// Returns once all work before this launch in the stream is complete and visible.
CLEAVE_DEVICE void grid_dependency_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#if __CUDA_ARCH__ >= 900
template <uint32_t Count>
CLEAVE_DEVICE void registers_increase() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
}

template <uint32_t Count>
CLEAVE_DEVICE void registers_decrease() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
}
#endif

}  // namespace cleave::ptx

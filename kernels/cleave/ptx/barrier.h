// mbarriers and named barriers: one instruction each.
#pragma once

#include "cleave/core/macros.h"

namespace cleave::ptx {

CLEAVE_DEVICE uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

CLEAVE_DEVICE void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// Makes initialised mbarriers visible to TMA and to the other CTAs of the cluster.
CLEAVE_DEVICE void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

CLEAVE_DEVICE void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Arrives on the same barrier of block `rank` of the cluster. It orders this thread's
/// shared-memory reads, not its writes to global memory: a release at cluster scope would wait for
/// those.
CLEAVE_DEVICE void mbarrier_arrive_remote(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

CLEAVE_DEVICE void mbarrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Hopper's instruction sleeps for a while, those before it look.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define CLEAVE_MBARRIER_LOOK "mbarrier.test_wait.parity"
#else
#define CLEAVE_MBARRIER_LOOK "mbarrier.try_wait.parity"
#endif

CLEAVE_DEVICE void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "wait_loop:\n" CLEAVE_MBARRIER_LOOK
      ".shared::cta.b64 done, [%0], %1;\n"
      "@!done bra wait_loop;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

#undef CLEAVE_MBARRIER_LOOK

/// As mbarrier_wait, and also orders what other CTAs of the cluster did before they arrived.
CLEAVE_DEVICE void mbarrier_wait_cluster(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "wait_loop:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra wait_loop;\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// Barrier `id` among `threads` threads (a multiple of 32) of the CTA.
CLEAVE_DEVICE void named_barrier_sync(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// The same, and whether `predicate` was true in any of them. The vote at the end changes nothing but
/// tells the compiler that a warp agrees: after a branch on this, descriptors stay in uniform registers.
CLEAVE_DEVICE bool named_barrier_any(uint32_t id, uint32_t threads, bool predicate) {
  uint32_t any;
  asm volatile(
      "{\n"
      ".reg .pred mine, any;\n"
      "setp.ne.u32 mine, %3, 0;\n"
      "bar.red.or.pred any, %1, %2, mine;\n"
      "selp.u32 %0, 1, 0, any;\n"
      "}"
      : "=r"(any)
      : "r"(id), "r"(threads), "r"(uint32_t(predicate))
      : "memory");
  return __any_sync(0xffffffffu, any != 0);
}

CLEAVE_DEVICE void named_barrier_arrive(uint32_t id, uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// By all lanes of a warp: true in one of them. Unlike after a comparison with its number, the compiler knows that it
/// is one, and does not go through the lanes for each instruction that takes uniform registers.
CLEAVE_DEVICE bool elect_lane() {
  uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred one;\n"
      "elect.sync _|one, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, one;\n"
      "}"
      : "=r"(elected));
  return elected != 0;
}

}  // namespace cleave::ptx

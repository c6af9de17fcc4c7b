// CTAs of a cluster: where they meet, and each other's shared memory.
#pragma once

#include "cleave/core/macros.h"

namespace cleave::ptx {

CLEAVE_DEVICE uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// All threads of all CTAs of the cluster meet. Orders no memory: it says that the others are
/// there, and what they initialised is fenced on its own.
CLEAVE_DEVICE void cluster_meet() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

/// The same in two halves.
CLEAVE_DEVICE void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
CLEAVE_DEVICE void cluster_wait() {
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

/// As cluster_meet(), and what each wrote before, the others see.
CLEAVE_DEVICE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// 16 bytes of the shared memory of another CTA, where its own is at `address`.
CLEAVE_DEVICE float4 load_cluster(uint32_t address, uint32_t rank) {
  float4 v;
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];\n"
      "}"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(address), "r"(rank)
      : "memory");
  return v;
}

}  // namespace cleave::ptx

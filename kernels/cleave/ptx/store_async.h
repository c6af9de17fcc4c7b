// Stores to another CTA's shared memory that announce themselves on an mbarrier there (sm_90).
#pragma once

#include "cleave/core/macros.h"

namespace cleave::ptx {

/// Stores to `address` of block `rank` of the cluster; `barrier` of that CTA counts 16 bytes.
CLEAVE_DEVICE void store_async(uint32_t address, uint32_t barrier, uint32_t rank, float4 v) {
  asm volatile(
      "{\n"
      ".reg .b32 to, at;\n"
      "mapa.shared::cluster.u32 to, %0, %2;\n"
      "mapa.shared::cluster.u32 at, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [to], {%3, %4, %5, %6}, [at];\n"
      "}" ::"r"(address),
      "r"(barrier), "r"(rank), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
      : "memory");
}

/// The same of 8 bytes.
CLEAVE_DEVICE void store_async(uint32_t address, uint32_t barrier, uint32_t rank, uint2 v) {
  asm volatile(
      "{\n"
      ".reg .b32 to, at;\n"
      "mapa.shared::cluster.u32 to, %0, %2;\n"
      "mapa.shared::cluster.u32 at, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [to], {%3, %4}, [at];\n"
      "}" ::"r"(address),
      "r"(barrier), "r"(rank), "r"(v.x), "r"(v.y)
      : "memory");
}

}  // namespace cleave::ptx

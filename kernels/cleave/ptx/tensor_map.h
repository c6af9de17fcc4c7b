// A tensor map that is changed in shared memory, and one in device memory that TMA may then use.
#pragma once

#include "cleave/core/macros.h"

namespace cleave::ptx {

CLEAVE_DEVICE void replace_address(uint32_t map, const void* address) {
  asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(map), "l"(address)
               : "memory");
}

/// The elements of a line, the first dimension.
CLEAVE_DEVICE void replace_line_size(uint32_t map, uint32_t elements) {
  asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 0, %1;" ::"r"(map), "r"(elements)
               : "memory");
}

/// From one line to the next, a multiple of 16.
CLEAVE_DEVICE void replace_line_stride(uint32_t map, uint64_t bytes) {
  asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], 0, %1;" ::"r"(map), "l"(bytes)
               : "memory");
}

/// Orders this thread's ordinary writes of a map in device memory before its loads through the map.
CLEAVE_DEVICE void fence_tensor_map(const void* map) {
  asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

}  // namespace cleave::ptx

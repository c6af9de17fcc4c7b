// The Tensor Memory Accelerator (TMA): loads, multicast loads, prefetches, stores. Call them from one thread.
#pragma once

#include "cleave/core/macros.h"

namespace cleave::ptx {

/// L2 eviction hints, as createpolicy encodes them.
enum class CacheHint : uint64_t {
  normal = 0x1000000000000000ull,
  evict_first = 0x12f0000000000000ull,
};

CLEAVE_DEVICE void prefetch_tensor_map(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/// Loads the box at (x, y, z) of `map` into shared memory; `barrier` counts its bytes. Outside the
/// tensor: zeros.
CLEAVE_DEVICE void tma_load(uint32_t to, const void* map, uint32_t barrier, int32_t x, int32_t y, int32_t z,
                            CacheHint hint) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_"
      "hint"
      " [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "l"(uint64_t(hint))
      : "memory");
}

/// The same into the same place of every CTA in `ctas` (a bit per cluster rank), each on its
/// own barrier.
CLEAVE_DEVICE void tma_load_multicast(uint32_t to, const void* map, uint32_t barrier, int32_t x, int32_t y, int32_t z,
                                      uint16_t ctas, CacheHint hint) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::"
      "cluster"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6, %7;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(ctas), "l"(uint64_t(hint))
      : "memory");
}

/// The same for maps of four dimensions.
CLEAVE_DEVICE void tma_load(uint32_t to, const void* map, uint32_t barrier, int32_t x, int32_t y, int32_t z, int32_t w,
                            CacheHint hint) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_"
      "hint"
      " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "l"(uint64_t(hint))
      : "memory");
}

CLEAVE_DEVICE void tma_load_multicast(uint32_t to, const void* map, uint32_t barrier, int32_t x, int32_t y, int32_t z,
                                      int32_t w, uint16_t ctas, CacheHint hint) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::"
      "cluster"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7, %8;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w), "h"(ctas), "l"(uint64_t(hint))
      : "memory");
}

/// Brings the box into L2.
CLEAVE_DEVICE void tma_prefetch(const void* map, int32_t x, int32_t y, int32_t z) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(map), "r"(x), "r"(y), "r"(z)
               : "memory");
}

CLEAVE_DEVICE void tma_prefetch(const void* map, int32_t x, int32_t y, int32_t z, int32_t w) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];" ::"l"(map), "r"(x), "r"(y),
               "r"(z), "r"(w)
               : "memory");
}

/// Loads `bytes` that lie side by side, a multiple of 16 from a multiple of 16 on.
CLEAVE_DEVICE void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier, CacheHint hint) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(uint64_t(hint))
      : "memory");
}

/// Stores the box at (x, y, z); what lies outside the tensor is clipped.
CLEAVE_DEVICE void tma_store(const void* map, uint32_t from, int32_t x, int32_t y, int32_t z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
               "r"(from), "r"(x), "r"(y), "r"(z)
               : "memory");
}

CLEAVE_DEVICE void tma_store(const void* map, uint32_t from, int32_t x, int32_t y, int32_t z, int32_t w) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
               "r"(from), "r"(x), "r"(y), "r"(z), "r"(w)
               : "memory");
}

/// Adds the box to float32 at (x, y, z), in L2; a store's commits and waits are this one's, too.
CLEAVE_DEVICE void tma_add(const void* map, uint32_t from, int32_t x, int32_t y, int32_t z) {
  asm volatile(
      "cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
      "r"(from), "r"(x), "r"(y), "r"(z)
      : "memory");
}

CLEAVE_DEVICE void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Waits until at most `Pending` of this thread's committed stores still read shared memory.
template <int Pending>
CLEAVE_DEVICE void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}

/// Orders this thread's ordinary writes to shared memory before later reads by TMA or
/// the tensor cores.
CLEAVE_DEVICE void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace cleave::ptx

// TMA's im2col mode: a box is a run of pixels, in the order of a convolution's rows,
// times channels. It begins at a pixel of the tensor map's bounding box, which the map's corners and
// steps describe, and goes on line by line, plane by plane, image by image; an offset moves all of
// its pixels, to a tap. Call these from one thread.
#pragma once

#include "cleave/core/macros.h"
#include "cleave/ptx/tma.h"

namespace cleave::ptx {

/// Loads pixels from (x, y, image) on, moved by (dx, dy), into shared memory; `barrier` counts their
/// bytes. Outside the tensor: zeros.
CLEAVE_DEVICE void tma_load_im2col(uint32_t to, const void* map, uint32_t barrier, int32_t channel, int32_t x,
                                   int32_t y, int32_t image, uint16_t dx, uint16_t dy, CacheHint hint) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.L2::"
      "cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8}, %9;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(channel), "r"(x), "r"(y), "r"(image), "h"(dx), "h"(dy), "l"(uint64_t(hint))
      : "memory");
}

/// The same into the same place of every CTA in `ctas` (a bit per cluster rank), each on its
/// own barrier.
CLEAVE_DEVICE void tma_load_im2col_multicast(uint32_t to, const void* map, uint32_t barrier, int32_t channel, int32_t x,
                                             int32_t y, int32_t image, uint16_t dx, uint16_t dy, uint16_t ctas,
                                             CacheHint hint) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast"
      "::cluster.L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8}, %9, %10;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(channel), "r"(x), "r"(y), "r"(image), "h"(dx), "h"(dy), "h"(ctas), "l"(uint64_t(hint))
      : "memory");
}

/// The same with a third dimension.
CLEAVE_DEVICE void tma_load_im2col(uint32_t to, const void* map, uint32_t barrier, int32_t channel, int32_t x,
                                   int32_t y, int32_t z, int32_t image, uint16_t dx, uint16_t dy, uint16_t dz,
                                   CacheHint hint) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.L2::"
      "cache_hint [%0], [%1, {%3, %4, %5, %6, %7}], [%2], {%8, %9, %10}, %11;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(channel), "r"(x), "r"(y), "r"(z), "r"(image), "h"(dx), "h"(dy), "h"(dz),
      "l"(uint64_t(hint))
      : "memory");
}

CLEAVE_DEVICE void tma_load_im2col_multicast(uint32_t to, const void* map, uint32_t barrier, int32_t channel, int32_t x,
                                             int32_t y, int32_t z, int32_t image, uint16_t dx, uint16_t dy, uint16_t dz,
                                             uint16_t ctas, CacheHint hint) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast"
      "::cluster.L2::cache_hint [%0], [%1, {%3, %4, %5, %6, %7}], [%2], {%8, %9, %10}, %11, "
      "%12;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(channel), "r"(x), "r"(y), "r"(z), "r"(image), "h"(dx), "h"(dy), "h"(dz), "h"(ctas),
      "l"(uint64_t(hint))
      : "memory");
}

/// Stores pixels from (x, y, image) on; what lies outside the tensor is clipped.
CLEAVE_DEVICE void tma_store_im2col(const void* map, uint32_t from, int32_t channel, int32_t x, int32_t y,
                                    int32_t image) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [%0, {%2, %3, %4, "
      "%5}], "
      "[%1];" ::"l"(map),
      "r"(from), "r"(channel), "r"(x), "r"(y), "r"(image)
      : "memory");
}

CLEAVE_DEVICE void tma_store_im2col(const void* map, uint32_t from, int32_t channel, int32_t x, int32_t y, int32_t z,
                                    int32_t image) {
  asm volatile(
      "cp.async.bulk.tensor.5d.global.shared::cta.im2col_no_offs.bulk_group [%0, {%2, %3, %4, %5, "
      "%6}], [%1];" ::"l"(map),
      "r"(from), "r"(channel), "r"(x), "r"(y), "r"(z), "r"(image)
      : "memory");
}

}  // namespace cleave::ptx

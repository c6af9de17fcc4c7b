// The producer's half of the sm_90a mainloop where there are few channels: TMA would fetch
// a line of 128 bytes for a pixel of 16, and fill most of a tile with nothing. So the threads of the
// producer warpgroup copy, 16 bytes at a time, what is narrow; one of them has TMA fetch the
// rest.
//
//   fprop   A: pixels, by threads, taps without a gap.   B: filters, a matrix
//   wgrad   A: dy, a matrix.                             B: pixels, by threads
//   dgrad   A: dy, by threads, taps without a gap.       B: filters, by threads
//   dgrad, its classes fused (fused_classes.h)
//           A: dy, by im2col.                            B: filters of all classes, by threads
//
// Where a pixel is no whole number of 16 bytes, the threads put vectors together from narrower reads; filters
// of fprop, too, since TMA cannot read their rows.
#pragma once

#include "cleave/config/clusters.h"
#include "cleave/config/loads.h"
#include "cleave/conv_load/gather.h"
#include "cleave/conv_load/im2col_loader.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/copy_async.h"

namespace cleave {

/// Both operands of a work tile, k block by k block, by all threads of the warpgroup.
template <GemmConfig C>
class GatherLoader {
  static_assert(sharers(C) == 1, "what threads copy is nobody else's");

 public:
  CLEAVE_DEVICE GatherLoader(const Params<C>& p, uint32_t thread)
      : p_(p), thread_(thread), im2col_(p, {}), pixels_(p, thread), filters_(p, thread) {}

  CLEAVE_DEVICE void start(const WorkTile& work, const Tile<C>& tile) {
    if constexpr (C.conv.fuses_classes) {
      im2col_.start(work, tile.m0, tile.n0);
    } else {
      pixels_.start(*tile.conv_class, gathers_a(C) ? tile.m0 : tile.n0, work.batch);
    }
    if constexpr (C.conv.kind == Conv::dgrad) filters_.start(*tile.conv_class, tile.n0, work.batch);
  }

  CLEAVE_DEVICE void load(const WorkTile& work, const Tile<C>& tile, uint32_t block, uint32_t a, uint32_t b,
                          uint32_t barrier) {
    const uint32_t k0 = block * C.tile.k;
    if (thread_ == 0) {
      ptx::mbarrier_arrive_expect(barrier, tma_bytes<C>());
      if constexpr (C.conv.fuses_classes) {
        im2col_.gather(work, block, a, barrier);
      } else if constexpr (has_map_b(C)) {
        load_operand<C, C.operands.b_major, C.tile.n, 1>(&p_.map_b, b, barrier, tile.n0, k0, work,
                                                         work.batch * p_.batched_b, {});
      } else if constexpr (has_map_a(C)) {
        load_operand<C, C.operands.a_major, C.tile.m, 1>(&p_.map_a, a, barrier, tile.m0, k0, work,
                                                         work.batch * p_.batched_a, {});
      }
    }
    if constexpr (C.conv.kind == Conv::dgrad) filters_.load(b, k0);
    if constexpr (!C.conv.fuses_classes) pixels_.load(gathers_a(C) ? a : b, k0);
    if constexpr (C.conv.kind == Conv::fprop && copies_filters(C)) {
      copy_operand<C, C.operands.b_major, C.tile.n, C.operands.load_bytes_b>(p_.b, b, tile.n0, k0, p_.size.n, p_.size.k,
                                                                             work.batch, thread_);
    }
    if constexpr (copies_unaligned(C)) {
      if constexpr (C.conv.kind == Conv::dgrad) {
        ptx::copy_async_commit();
        ptx::copy_async_wait<0>();
      }
      ptx::fence_async_shared();
      ptx::mbarrier_arrive(barrier);
    } else {
      ptx::copy_async_arrive(barrier);
    }
  }

 private:
  const Params<C>& p_;
  uint32_t thread_;
  Im2colLoader<C> im2col_;
  GatheredPixels<C> pixels_;
  GatheredFilters<C> filters_;
};

}  // namespace cleave

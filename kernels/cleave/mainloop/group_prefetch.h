// What a CTA brings into L2 while the bounds of groups, which say where its first tile lies, are on their way.
//
// That takes some 1,500 clocks, in which memory has nothing else to do. Almost every tile of the weights will be loaded
// by somebody, whatever the bounds turn out to be: so the CTAs deal out the first k blocks of all groups among
// themselves, and those of the tokens, and what they then load first is in L2. Products below 20 us take 0.97 of the
// time (docs/notes/2026-11-grouped-gemm.md, which has what more was tried).
#pragma once

#include "cleave/mainloop/tma_loader.h"
#include "cleave/ptx/sync.h"

namespace cleave {

/// Whether rows of A (or columns of B) are tokens of groups, each of which has weights of its own, a matrix to TMA.
CLEAVE_HD constexpr bool prefetches_groups(const GemmConfig& c) {
  return (c.schedule.grouping == Grouping::m && has_map_b(c)) || (c.schedule.grouping == Grouping::n && has_map_a(c));
}

template <GemmConfig C>
class GroupPrefetch {
 public:
  CLEAVE_DEVICE explicit GroupPrefetch(const GemmParams& p) : p_(p) {}

  /// By one thread. Waits until an earlier kernel, which may have written the tokens, is done.
  CLEAVE_DEVICE void run() const {
    ptx::grid_dependency_wait();
    constexpr uint32_t kBlocksOfWeights = 2;  // a CTA; a third gains nothing
    constexpr uint32_t kTogether = kTokensAreA ? C.cluster.multicast_n : C.cluster.multicast_m;
    CLEAVE_NO_UNROLL
    for (uint32_t i = 0; i < kBlocksOfWeights; ++i)
      prefetch<!kTokensAreA>(blockIdx.x + i * gridDim.x, p_.schedule.tiles_across * kTogether, p_.groups.count);
    if constexpr (kTokensAreA ? has_map_a(C) : has_map_b(C)) {
      // Where groups lie apart, how far says nothing of the tokens that are there.
      if (p_.groups.bounds == GroupBounds::counts) return;
      prefetch<kTokensAreA>(blockIdx.x, ceil_div(p_.groups.extent, kTokensAreA ? output_rows(C) : output_columns(C)),
                            1);
    }
  }

 private:
  static constexpr bool kTokensAreA = C.schedule.grouping == Grouping::m;

  /// The `i`th k block of A (or B): the first ones of all tiles come before the second ones.
  template <bool OfA>
  CLEAVE_DEVICE void prefetch(uint32_t i, uint32_t tiles, uint32_t groups) const {
    const uint32_t block = i / (tiles * groups), group = i / tiles % groups, tile = i % tiles;
    if (block >= p_.schedule.k_blocks) return;
    if constexpr (OfA) {
      prefetch_boxes<C.operands.a_major, C.tile.m, C.cluster.multicast_n, 1>(p_.map_a, tile * output_rows(C), block,
                                                                             group * p_.batched_a);
    } else {
      prefetch_boxes<C.operands.b_major, stage_columns(C), C.cluster.multicast_m, gated(C) ? 2 : 1>(
          p_.map_b, tile * output_columns(C), block, group * p_.batched_b);
    }
  }

  template <Major M, uint32_t TileRows, uint32_t Sharers, uint32_t Pieces>
  CLEAVE_DEVICE void prefetch_boxes(const TensorMap& map, uint32_t row0, uint32_t block, uint32_t batch) const {
    const auto prefetch_box = [&](uint32_t, uint32_t x, uint32_t y, [[maybe_unused]] uint32_t piece) {
      if constexpr (Pieces == 2) {
        ptx::tma_prefetch(&map, x, y, piece, batch);
      } else {
        ptx::tma_prefetch(&map, x, y, batch);
      }
    };
    CLEAVE_UNROLL
    for (uint32_t share = 0; share < Sharers; ++share)
      for_each_box<C, M, TileRows, Sharers, Pieces, C.tile.k>(share, row0, block * C.tile.k, prefetch_box);
  }

  const GemmParams& p_;
};

}  // namespace cleave

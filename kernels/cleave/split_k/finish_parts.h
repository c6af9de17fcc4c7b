// Finishing parts of a tile: adding them up over all slices, in slice order, and running the epilogue.
//
// A trip to L2 takes longer than anything done with the data. So everything that a few blocks need, partials and the
// epilogue's operands, is requested before any of it is used: several blocks at once for few slices, one for many.
#pragma once

#include "cleave/config/output.h"
#include "cleave/config/reads_ahead.h"
#include "cleave/config/threads.h"
#include "cleave/epilogue/tile_parts.h"
#include "cleave/split_k/partial_tile.h"

namespace cleave {

/// How a thread divides the float4s of partials that it has in flight: `kBlocks` blocks of D at once, and for each the
/// partials of `kSlices` slices, at most `Slices`. The accumulators' registers are free by now (forgets_sums). They are
/// scarce in streamed kernels, which have the next tile's weights in flight, where columns that share a scale are kept
/// until it is known, and with three consumers or more.
template <GemmConfig C, uint32_t Slices>
struct PartialLoads {
  static constexpr bool kScarce =
      C.family == KernelFamily::streamed || C.epilogue.has_scale_out || C.warps.consumers > 2;
  static constexpr uint32_t kSums = gated(C) ? 2 : 1;  // of a block of D: the gate's, and the up projection's
  static constexpr uint32_t kInFlight = (kScarce ? 8 : 16) / kSums;
  static constexpr uint32_t kSlices = min_of(Slices, kInFlight);
  static constexpr uint32_t kMost = kScarce ? 1 : kInFlight / kSlices;
  static constexpr uint32_t kBlocks = inputs_by_element(C) > 0 ? min_of(kMost, blocks_beside_sums(C)) : kMost;
};

/// Adds up the first `count` of `blocks` and calls `finish(i, sums, up_sums, inputs)` for each. `partials`: the
/// thread's, of the tile's first slice.
template <GemmConfig C, class Loads, class Finish>
CLEAVE_DEVICE void finish_blocks(EpilogueOp<C, GlobalBroadcast<C>>& op, const float4* partials, uint32_t slices,
                                 const uint32_t (&blocks)[Loads::kBlocks], uint32_t count, const Finish& finish) {
  float4 parts[Loads::kBlocks][Loads::kSums][Loads::kSlices];
  Sum<C> sums[Loads::kBlocks][Loads::kSums][4] = {};
  BlockInputs<C> inputs[Loads::kBlocks];
  const auto load = [&](uint32_t first) {
    const float4* const at = partials + uint64_t(first) * kPartialTile<C>;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Loads::kBlocks; ++i) {
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < Loads::kSums; ++j) {
        const float4* const of_block = at + (blocks[i] + j * Fragment<C>::kUpBlocks) * math_threads(C);
        CLEAVE_UNROLL
        for (uint32_t s = 0; s < Loads::kSlices; ++s)
          parts[i][j][s] = ptx::load_l2_if(of_block + s * kPartialTile<C>, i < count && first + s < slices);
      }
    }
  };
  const auto add = [&] {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Loads::kBlocks; ++i) {
      CLEAVE_UNROLL
      for (uint32_t j = 0; j < Loads::kSums; ++j) {
        CLEAVE_UNROLL
        for (uint32_t s = 0; s < Loads::kSlices; ++s) add_block(sums[i][j], parts[i][j][s]);
      }
    }
  };
  // The epilogue's operands come behind the first partials, as some are converted, and so waited for, one by one; but
  // that is two loops, for which streamed kernels have no registers.
  constexpr uint32_t kAhead = Loads::kScarce ? 0 : Loads::kSlices;
  if constexpr (kAhead > 0) load(0);
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < Loads::kBlocks; ++i)
    if (i < count) op.fetch_all(blocks[i], inputs[i]);
  if constexpr (kAhead > 0) add();
  CLEAVE_NO_UNROLL
  for (uint32_t first = kAhead; first < slices; first += Loads::kSlices) {
    load(first);
    add();
  }
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < Loads::kBlocks; ++i)
    if (i < count) finish(i, sums[i][0], sums[i][Loads::kSums - 1], inputs[i]);
}

/// Finishes parts that have one block each, several at once.
template <GemmConfig C, class Loads>
CLEAVE_DEVICE void finish_single_blocks(const GemmParams& p, EpilogueOp<C, GlobalBroadcast<C>>& op,
                                        const float4* partials, uint32_t first, uint32_t step) {
  CLEAVE_NO_UNROLL
  for (uint32_t part = first; part < TileParts<C>::kCount; part += step * Loads::kBlocks) {
    uint32_t blocks[Loads::kBlocks], count = 0;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Loads::kBlocks; ++i) {
      blocks[i] = TileParts<C>::first_block(part + i * step);
      if (part + i * step < TileParts<C>::kCount) ++count;
    }
    finish_blocks<C, Loads>(op, partials, p.schedule.clusters_per_tile, blocks, count,
                            [&](uint32_t i, const Sum<C>* sums, const Sum<C>* up_sums, const BlockInputs<C>& inputs) {
                              store_block_direct<C>(p, op, blocks[i], sums, up_sums, inputs);
                            });
  }
}

/// By the math threads: parts `first`, `first` + `step`, ... of tile `number`, whose partials are all written.
template <GemmConfig C>
CLEAVE_DEVICE void finish_parts(const GemmParams& p, EpilogueOp<C, GlobalBroadcast<C>>& op, uint32_t number,
                                uint32_t first, uint32_t step, uint32_t thread) {
  using Many = PartialLoads<C, 16>;  // slices, as far as there are registers
  const uint32_t slices = p.schedule.clusters_per_tile;
  const float4* const partials = partial_tile_block<C>(p.partials, number * slices, 0, thread);
  if constexpr (TileParts<C>::kBlocks == 1) {
    using Some = PartialLoads<C, 8>;
    using Few = PartialLoads<C, 4>;
    if (Few::kBlocks > 1 && slices <= Few::kSlices) {
      finish_single_blocks<C, Few>(p, op, partials, first, step);
    } else if (Some::kBlocks > 1 && slices <= Some::kSlices) {
      finish_single_blocks<C, Some>(p, op, partials, first, step);
    } else {
      finish_single_blocks<C, Many>(p, op, partials, first, step);
    }
  } else {
    CLEAVE_NO_UNROLL
    for (uint32_t part = first; part < TileParts<C>::kCount; part += step) {
      PartStore<C, GlobalBroadcast<C>> store(p, op, part);
      CLEAVE_UNROLL
      for (uint32_t b = 0; b < TileParts<C>::kBlocks; ++b) {
        const uint32_t block[] = {TileParts<C>::first_block(part) + b};
        finish_blocks<C, Many>(op, partials, slices, block, 1,
                               [&](uint32_t, const Sum<C>* sums, const Sum<C>* up_sums, const BlockInputs<C>& inputs) {
                                 store.add(b, sums, up_sums, inputs);
                               });
      }
      store.finish();
    }
  }
}

}  // namespace cleave

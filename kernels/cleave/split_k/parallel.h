// parallel split-K without clusters: every slice writes its partial, and the slices that are still
// there when the last one arrives share the sum and the epilogue (fixup_word.h). No second launch.
#pragma once

#include "cleave/epilogue/store_direct.h"
#include "cleave/epilogue/store_quantized.h"
#include "cleave/split_k/fixup_word.h"
#include "cleave/split_k/partial_tile.h"

namespace cleave {

/// Looks that a slice takes at its tile's word before it leaves: some 50 us. CTAs of one launch end
/// up to 10 us apart.
inline constexpr uint32_t kLingerLooks = 64;

/// By one thread: the chunks that are this slice's to reduce, as bits. `stays`: the CTA has no other
/// work tile to go on with.
CLEAVE_DEVICE uint32_t arrive_and_linger(uint64_t* address, uint32_t slice, uint32_t slices, uint32_t chunks,
                                         bool stays) {
  if (!stays) {
    const FixupWord found{ptx::add_acquire_release(address, FixupWord::arrival(slice, false))};
    if (!found.leaves_all(slices)) return 0;
    *address = 0;
    return FixupWord::all(chunks);
  }
  ptx::add_release(address, FixupWord::arrival(slice, true));
  FixupWord seen;
  for (uint32_t i = 0; i < kLingerLooks && !seen.complete(slices); ++i) seen = {ptx::load_acquire(address)};
  while (!seen.complete(slices)) {
    const FixupWord found{ptx::compare_exchange_acquire(address, seen.bits, seen.without(slice).bits)};
    if (found.bits == seen.bits) return 0;
    seen = found;
  }
  if (FixupWord{ptx::add_relaxed(address, FixupWord::kOne)}.clears(slices)) *address = 0;
  return seen.chunks_of(slice, chunks);
}

/// What a chunk has a number of: blocks of accumulators, or groups of them that share a scale of D's.
template <GemmConfig C>
CLEAVE_HD constexpr uint32_t reduced_parts() {
  if constexpr (C.epilogue.has_scale_out) {
    return ScaleGroups<C>::kCount;
  } else {
    return Fragment<C>::kBlocks;
  }
}

/// The sums over all slices of a group's blocks, and the epilogue.
template <GemmConfig C>
CLEAVE_DEVICE void reduce_group(const GemmParams& p, EpilogueOp<C, GlobalBroadcast<C>>& op, uint32_t number,
                                uint32_t group, uint32_t thread) {
  using Groups = ScaleGroups<C>;
  Sum<C> sums[Groups::kBlocks][4] = {}, up_sums[gated(C) ? Groups::kBlocks : 1][4] = {};
  CLEAVE_UNROLL
  for (uint32_t b = 0; b < Groups::kBlocks; ++b) {
    const uint32_t block = Groups::first_block(group) + b;
    sum_partials<C>(p, number, block, thread, sums[b]);
    if constexpr (gated(C)) sum_partials<C>(p, number, block + Fragment<C>::kUpBlocks, thread, up_sums[b]);
  }
  store_group<C>(p, op, group, sums[0], up_sums[0]);
}

/// The parts of one chunk: their sums over all slices, and the epilogue.
template <GemmConfig C>
CLEAVE_DEVICE void reduce_chunk(const GemmParams& p, EpilogueOp<C, GlobalBroadcast<C>>& op, uint32_t number,
                                uint32_t chunk, const EvenPartition& chunks, uint32_t thread) {
  for (uint32_t block = chunks.begin(chunk); block < chunks.begin(chunk + 1); ++block) {
    if constexpr (C.epilogue.has_scale_out) {
      reduce_group<C>(p, op, number, block, thread);
      continue;
    }
    if (!Fragment<C>::stored(block)) continue;
    const ElementInputs<C> elements = op.fetch(block);
    Sum<C> v[4] = {}, up_sums[4] = {};
    sum_partials<C>(p, number, block, thread, v);
    if constexpr (gated(C)) sum_partials<C>(p, number, block + Fragment<C>::kUpBlocks, thread, up_sums);
    store_block_direct<C>(p, op, block, v, up_sums, elements);
  }
}

/// By the math threads. `number`: the tile's, for its word and partials; `idle`: the CTA has no work tile
/// after this one; `shared`: a word of shared memory.
template <GemmConfig C>
CLEAVE_DEVICE void reduce_parallel(const GemmParams& p, const WorkTile& work, uint32_t number, const Tile<C>& tile,
                                   bool idle, const Sums<C>& sums, uint32_t thread, uint32_t* shared) {
  const uint32_t slices = p.schedule.slices;
  const uint32_t count = FixupWord::chunks(slices, reduced_parts<C>());
  write_partial<C>(p.partials, number * slices + work.slice, sums, thread);
  math_sync<C>();
  if (thread == 0) {
    uint64_t* const word = reinterpret_cast<uint64_t*>(p.counters) + number;
    *shared = arrive_and_linger(word, work.slice, slices, count, idle && work.slice < count);
  }
  math_sync<C>();
  const uint32_t mine = __shfl_sync(0xffffffffu, *shared, 0);
  if (mine == 0) return;
  GlobalBroadcast<C> broadcast(p, tile);
  EpilogueOp<C, GlobalBroadcast<C>> op(p, tile, broadcast);
  const EvenPartition chunks(reduced_parts<C>(), count);
  for (uint32_t left = mine; left != 0; left &= left - 1)
    reduce_chunk<C>(p, op, number, __ffs(int(left)) - 1, chunks, thread);
  op.done();
}

}  // namespace cleave

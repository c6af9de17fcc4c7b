// parallel split-K without clusters: every slice writes its partial, and the slices that are still
// there when the last one arrives share the sum and the epilogue (fixup_word.h). No second launch.
#pragma once

#include "cleave/epilogue/tile_parts.h"
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

/// The parts of one chunk: their sums over all slices, and the epilogue.
template <GemmConfig C>
CLEAVE_DEVICE void reduce_chunk(const GemmParams& p, EpilogueOp<C, GlobalBroadcast<C>>& op, uint32_t number,
                                uint32_t chunk, const EvenPartition& chunks, uint32_t thread) {
  using Parts = TileParts<C>;
  for (uint32_t part = chunks.begin(chunk); part < chunks.begin(chunk + 1); ++part) {
    if (!Fragment<C>::stored(Parts::first_block(part))) continue;
    PartStore<C, GlobalBroadcast<C>> store(p, op, part);
    CLEAVE_UNROLL
    for (uint32_t b = 0; b < Parts::kBlocks; ++b) {
      const uint32_t block = Parts::first_block(part) + b;
      const ElementInputs<C> matrices = op.fetch(block);
      Sum<C> v[4] = {}, up_sums[4] = {};
      sum_partials<C>(p, number, block, thread, v);
      if constexpr (gated(C)) sum_partials<C>(p, number, block + Fragment<C>::kUpBlocks, thread, up_sums);
      store.add(b, v, up_sums, matrices);
    }
    store.finish();
  }
}

/// By the math threads. `number`: the tile's, for its word and partials; `idle`: the CTA has no work tile
/// after this one; `shared`: a word of shared memory.
template <GemmConfig C>
CLEAVE_DEVICE void reduce_parallel(const GemmParams& p, const WorkTile& work, uint32_t number, const Tile<C>& tile,
                                   bool idle, const Sums<C>& sums, uint32_t thread, uint32_t* shared) {
  const uint32_t slices = p.schedule.slices;
  const uint32_t count = FixupWord::chunks(slices, TileParts<C>::kCount);
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
  const EvenPartition chunks(TileParts<C>::kCount, count);
  for (uint32_t left = mine; left != 0; left &= left - 1)
    reduce_chunk<C>(p, op, number, __ffs(int(left)) - 1, chunks, thread);
  op.done();
}

}  // namespace cleave

// parallel split-K without clusters: every slice writes its partial, and the slices that are still
// there when the last one arrives share the sum and the epilogue (fixup_word.h). No second launch.
#pragma once

#include "cleave/split_k/finish_parts.h"
#include "cleave/split_k/fixup_word.h"

namespace cleave {

/// Looks that a slice takes at its tile's word before it leaves: some 50 us. CTAs of one launch end
/// up to 10 us apart.
inline constexpr uint32_t kLingerLooks = 64;

/// By one thread: the chunks that are this slice's to reduce, as bits. `stays`: the CTA has no other
/// work tile to go on with; if chunks are its own, it has yet to leave.
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
#pragma unroll 1
  for (uint32_t i = 0; i < kLingerLooks && !seen.complete(slices); ++i) seen = {ptx::load_acquire(address)};
  while (!seen.complete(slices)) {
    const FixupWord found{ptx::compare_exchange_acquire(address, seen.bits, seen.without(slice).bits)};
    if (found.bits == seen.bits) return 0;
    seen = found;
  }
  return seen.chunks_of(slice, chunks);
}

/// By the math threads. `number`: the tile's, for its word and partials; `idle`: the CTA has no work tile
/// after this one; `shared`: a word of shared memory.
///
/// Memory order: the partials are written before the barrier, which the thread that releases them passes, too; and
/// read after another barrier behind that thread's acquire. Release and acquire are cumulative, so what one thread
/// of each CTA agrees on in the word holds for all of them. The loads are past L1.
template <GemmConfig C>
CLEAVE_DEVICE void reduce_parallel(const GemmParams& p, const WorkTile& work, uint32_t number, const Tile<C>& tile,
                                   bool idle, const Sums<C>& sums, uint32_t thread, uint32_t* shared) {
  const uint32_t slices = p.schedule.slices;
  const uint32_t count = FixupWord::chunks(slices, TileParts<C>::kCount);
  const bool stays = idle && work.slice < count;
  uint64_t* const word = reinterpret_cast<uint64_t*>(p.counters) + number;
  write_partial<C>(p.partials, number * slices + work.slice, sums, thread);
  math_sync<C>();
  if (thread == 0) *shared = arrive_and_linger(word, work.slice, slices, count, stays);
  math_sync<C>();
  const uint32_t mine = __shfl_sync(0xffffffffu, *shared, 0);
  if (mine == 0) return;
  // What the word was, which takes a trip to L2, is looked at when the tile is done: it guards no data, and as long as
  // it is not zero again no launch begins that could take it for its own.
  FixupWord left;
  if (stays && thread == 0) left = {ptx::add_relaxed(word, FixupWord::kOne)};
  GlobalBroadcast<C> broadcast(p, tile);
  EpilogueOp<C, GlobalBroadcast<C>> op(p, tile, broadcast);
#pragma unroll 1
  for (uint32_t rest = mine; rest != 0; rest &= rest - 1)
    finish_parts<C>(p, op, number, __ffs(int(rest)) - 1, count, thread);
  op.done();
  if (stays && thread == 0 && left.clears(slices)) *word = 0;
}

}  // namespace cleave

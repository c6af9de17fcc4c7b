// parallel split-K without clusters: every slice writes its partial tile, and the slices that are still there when the
// last one arrives share the reduction and the epilogue (fixup_word.h). No second launch. Slices that a CTA has taken
// in turn are one here.
#pragma once

#include "cleave/config/threads.h"
#include "cleave/split_k/finish_parts.h"
#include "cleave/split_k/fixup_word.h"

namespace cleave {

/// How often a slice polls its tile's word before it leaves: for some 50 us. CTAs of one launch end up to 10 us apart.
inline constexpr uint32_t kLingerLooks = 64;

/// Run by one thread; returns the chunks that this slice has to reduce, as a bit mask. `stays`: the CTA has no other
/// work tile to go on with, and may linger. If it then gets chunks, it has yet to leave (FixupWord).
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
  CLEAVE_NO_UNROLL
  for (uint32_t i = 0; i < kLingerLooks && !seen.complete(slices); ++i) seen = {ptx::load_acquire(address)};
  while (!seen.complete(slices)) {
    const FixupWord found{ptx::compare_exchange_acquire(address, seen.bits, seen.without(slice).bits)};
    if (found.bits == seen.bits) return 0;
    seen = found;
  }
  return seen.chunks_of(slice, chunks);
}

/// Run by the math threads. `number`: the tile's, for its word and partials; `idle`: the CTA has no work tile after
/// this one; `shared`: a word of shared memory.
///
/// Memory order: partials are written before a barrier that the releasing thread passes as well, and read after a
/// barrier behind that thread's acquire. Release and acquire are cumulative, so what one thread of each CTA agrees on
/// in the word holds for all threads. The loads bypass L1.
template <GemmConfig C>
CLEAVE_DEVICE void reduce_parallel(const GemmParams& p, const WorkTile& work, uint32_t number, const Tile<C>& tile,
                                   bool idle, const Sums<C>& sums, uint32_t thread, uint32_t* shared) {
  const uint32_t slices = p.schedule.clusters_per_tile;
  const uint32_t slice = C.schedule.in_turn ? work.slice / C.schedule.turns : work.slice;
  const uint32_t count = FixupWord::chunks(slices, TileParts<C>::kCount);
  const bool stays = idle && slice < count;
  uint64_t* const word = reinterpret_cast<uint64_t*>(p.counters) + number;
  write_partial<C>(p.partials, number * slices + slice, sums, thread);
  math_sync<C>();
  if (thread == 0) *shared = arrive_and_linger(word, slice, slices, count, stays);
  math_sync<C>();
  const uint32_t mine = __shfl_sync(0xffffffffu, *shared, 0);
  if (mine == 0) return;
  // The word's old value takes a trip to L2, and is only looked at when the tile is done: it guards no data, and no
  // launch that could mistake the word for its own begins before it is zero again.
  FixupWord left;
  if (stays && thread == 0) left = {ptx::add_relaxed(word, FixupWord::kOne)};
  GlobalBroadcast<C> broadcast(p, tile);
  EpilogueOp<C, GlobalBroadcast<C>> op(p, tile, broadcast);
  CLEAVE_NO_UNROLL
  for (uint32_t rest = mine; rest != 0; rest &= rest - 1)
    finish_parts<C>(p, op, number, __ffs(int(rest)) - 1, count, thread);
  op.done();
  if (stays && thread == 0 && left.clears(slices)) *word = 0;
}

}  // namespace cleave

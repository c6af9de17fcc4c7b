// The second half of parallel split-K without clusters: after its own work units, every block takes
// reduction units (a tile's share of accumulators), sums the slices' partials in order and runs
// the epilogue. No second launch.
#pragma once

#include "cleave/epilogue/store_direct.h"
#include "cleave/join/partials.h"
#include "cleave/kernel/place.h"

namespace cleave {

template <GemmConfig C>
CLEAVE_DEVICE void reduce(const Params<C>& p, const Place<C>& place, const Fragment<C>& fragment,
                          uint32_t thread) {
  const Schedule& s = p.schedule;
  const Shares shares(Fragment<C>::kBlocks, s.reduce_chunks);
  auto finder = place.finder(s);
  const uint32_t units = finder.tiles() * s.reduce_chunks;
  for (uint32_t index = place.worker; index < units; index += place.workers) {
    const ReduceUnit unit = reduce_unit(s, finder, index);
    const uint32_t tile = place.number(unit.tile);
    const Tile<C> at = place.tile(p, fragment, unit);
    uint32_t* const counter = p.counters + tile;
    wait_counter<C>(counter, s.slices, thread);
    GlobalLines<C> lines(p.epilogue, at);
    Finish<C, GlobalLines<C>> finish(p.epilogue, at, lines);
    for (uint32_t block = shares.begin(unit.chunk); block < shares.begin(unit.chunk + 1); ++block) {
      if (!Fragment<C>::stored(block)) continue;
      Sum<C> v[4] = {}, ups[4] = {};
      sum_partials<C>(p, tile, block, thread, v);
      if constexpr (gated(C)) sum_partials<C>(p, tile, block + Fragment<C>::kUpBlocks, thread, ups);
      store_block_direct<C>(p.epilogue, finish, block, v, ups);
    }
    finish.done();
    // Whoever saw all slices adds one more: the last of them leaves the counter as it found it.
    if (thread == 0 && ptx::add_relaxed(counter, 1) == s.slices + s.reduce_chunks - 1) *counter = 0;
  }
}

}  // namespace cleave

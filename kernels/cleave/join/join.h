// How the slices of a tile become one sum, for each split-K mode. `join` is called with a unit's
// accumulators and says whether this block now holds the whole tile and must run the epilogue.
//
// Counters are zero when a launch starts and zero again when it ends: the last to need one resets
// it.
#pragma once

#include "cleave/join/partials.h"
#include "cleave/kernel/gemm_params.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/sync.h"

namespace cleave {

/// `tile`: the tile's number; `worker`: this block's (stream_k). Both index counters and partials.
template <GemmConfig C>
CLEAVE_DEVICE bool join(const GemmParams& p, const WorkUnit& unit, uint32_t tile, uint32_t worker,
                        Sums<C>& sums, uint32_t thread) {
  if constexpr (C.split == SplitKMode::serial) {
    // Turnstile: slice s adds itself to the running sum after slice s - 1 has.
    uint32_t* const counter = p.counters + tile;
    if (unit.slice > 0) {
      wait_counter<C>(counter, unit.slice, thread);
      add_partial<C>(p.partials, tile, sums, thread);
    }
    const bool last = unit.slice + 1 == p.schedule.slices;
    if (!last) write_partial<C>(p.partials, tile, sums, thread);
    math_sync<C>();
    if (thread == 0) ptx::store_release(counter, last ? 0 : unit.slice + 1);
    return last;
  } else if constexpr (C.split == SplitKMode::parallel) {
    write_partial<C>(p.partials, tile * p.schedule.slices + unit.slice, sums, thread);
    math_sync<C>();
    if (thread == 0) ptx::add_release(p.counters + tile, 1);
    return false;
  } else if constexpr (C.split == SplitKMode::stream_k) {
    if (unit.slice != 0) {
      write_partial<C>(p.partials, worker, sums, thread);
      math_sync<C>();
      if (thread == 0) ptx::store_release(p.counters + worker, 1);
      return false;
    }
    for (uint32_t i = 1; i <= unit.contributors; ++i) {
      const uint32_t from = worker + i * sharers(C);
      wait_counter<C>(p.counters + from, 1, thread);
      add_partial<C>(p.partials, from, sums, thread);
      if (thread == 0) ptx::store_release(p.counters + from, 0);
    }
    return true;
  } else {
    return true;
  }
}

}  // namespace cleave

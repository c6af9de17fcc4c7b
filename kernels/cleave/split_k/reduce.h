// How the parts of a tile become one sum, for each split-K mode that adds them up through global memory.
//
// Counters are zero when a launch starts and zero again when it ends: the last CTA to need one clears it.
#pragma once

#include "cleave/config/clusters.h"
#include "cleave/config/threads.h"
#include "cleave/split_k/parallel.h"

namespace cleave {

/// Turnstile: slice s adds itself to the running sum after slice s - 1 has. Returns true for the last slice.
template <GemmConfig C>
CLEAVE_DEVICE bool reduce_serial(const GemmParams& p, const WorkTile& work, uint32_t number, Sums<C>& sums,
                                 uint32_t thread) {
  uint32_t* const counter = p.counters + number;
  if (work.slice > 0) {
    wait_for_turn<C>(counter, work.slice, thread);
    add_partial<C>(p.partials, number, sums, thread);
  }
  const bool last = work.slice + 1 == p.schedule.slices;
  if (!last) write_partial<C>(p.partials, number, sums, thread);
  math_sync<C>();
  if (thread == 0) ptx::store_release(counter, last ? 0 : work.slice + 1);
  return last;
}

/// Stream-K's fixup: a tile that was cut is finished by the CTA that computes its last missing part. Returns true for
/// that CTA, which then has the whole sum.
///
/// Successive clusters hold the parts. The first one reaches its part at the end of its stretch of the line, the others
/// at the beginning of theirs. So the first mostly finds the other parts there, and its own never leaves the registers.
/// The parts are added in the order of K, whichever CTA does it.
template <GemmConfig C>
CLEAVE_DEVICE bool fixup_stream_k(const GemmParams& p, const WorkTile& work, Sums<C>& sums, uint32_t thread) {
  if (work.parts == 1) return true;
  // The CTAs that hold the parts, one in each of successive clusters.
  const uint32_t owner = blockIdx.x - work.slice * sharers(C);
  const auto slot = [&](uint32_t part) {  // a cluster may hold the first part of one tile and another's rest
    return part == 0 ? gridDim.x + owner : owner + part * sharers(C);
  };
  uint32_t* const counter = p.counters + owner;

  if (work.slice == 0 && others_arrived<C>(counter, work.parts - 1, thread)) {
    if (thread == 0) *counter = 0;
  } else {
    write_partial<C>(p.partials, slot(work.slice), sums, thread);
    if (!arrive_last<C>(counter, work.parts, thread)) return false;
    read_partial<C>(p.partials, slot(0), sums, thread);
  }
  for (uint32_t part = 1; part < work.parts; ++part) add_partial<C>(p.partials, slot(part), sums, thread);
  return true;
}

/// Returns true if this CTA now holds the whole tile in `sums` and must run the epilogue; parallel runs it by itself.
/// `number`: the tile's; `idle`: the CTA has no work tile after this one; `shared`: SmemPlan::fixup.
template <GemmConfig C>
CLEAVE_DEVICE bool reduce_split_k(const GemmParams& p, const WorkTile& work, uint32_t number, const Tile<C>& tile,
                                  bool idle, Sums<C>& sums, uint32_t thread, uint32_t* shared) {
  if constexpr (C.schedule.split == SplitKMode::serial) {
    return reduce_serial<C>(p, work, number, sums, thread);
  } else if constexpr (C.schedule.split == SplitKMode::parallel) {
    reduce_parallel<C>(p, work, number, tile, idle, sums, thread, shared);
    return false;
  } else if constexpr (C.schedule.split == SplitKMode::stream_k) {
    return fixup_stream_k<C>(p, work, sums, thread);
  } else {
    return true;
  }
}

}  // namespace cleave

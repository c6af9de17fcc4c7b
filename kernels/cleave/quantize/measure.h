// The scale of a whole tensor: the first of two launches, quantize_rows with that scale the second.
//
// Timeline   every team walks its groups, the CTAs' reaches meet in global memory, and the last
//            CTA to arrive writes the scale and resets what they met in
// Order      from the first group to the last, where quantize_rows begins
#pragma once

#include "cleave/ptx/sync.h"
#include "cleave/quantize/quantize_rows.h"

namespace cleave {

/// The reaches of a CTA's threads, of all CTAs once. By all threads.
template <QuantizeConfig C>
CLEAVE_DEVICE void join_reaches(const QuantizeParams& p, Reach reach) {
  reach = reduce_cta(C.symmetric, reach);
  if (threadIdx.x != 0) return;
  uint32_t* const above = p.counters;
  uint32_t* const below = p.counters + 1;
  uint32_t* const arrived = p.counters + 2;
  atomicMax(above, uint32_t(reach.above));
  if constexpr (!C.symmetric) atomicMax(below, uint32_t(reach.below));
  if (ptx::add_acquire_release(arrived, 1) != gridDim.x - 1) return;
  reach.above = int32_t(ptx::load_acquire(above));
  if constexpr (!C.symmetric) reach.below = int32_t(ptx::load_acquire(below));
  write_quantizer<C>(p, RowGroup{}, quantizer_for(C.q, C.symmetric, C.ue8m0, reach));
  *above = *below = *arrived = 0;
}

template <QuantizeConfig C>
CLEAVE_DEVICE void measure(const QuantizeParams& p) {
  static_assert(C.batch == 1 && !RowTeam<C>::kWholeCta, "a team walks groups one by one");
  ptx::launch_dependents();
  ptx::grid_dependency_wait();

  const RowTeam<C> team;
  Reach reach;
  const uint32_t stride = gridDim.x * team.count();
  for (uint32_t number = team.group(0); number < p.groups; number += stride) {
    const RowGroup group = row_group(p, number);
    float held[C.hold][C.width] = {};
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.hold; ++i) {
      if (team.col(i) < group.size) load_values<C>(p, group.row, group.col + team.col(i), held[i]);
    }
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.hold; ++i) add_values<C>(reach, held[i]);
  }
  join_reaches<C>(p, reach);
}

}  // namespace cleave

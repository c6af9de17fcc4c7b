// Quantises groups that are pieces of rows: whole rows, 128 neighbours, or, where the scales are
// given, pieces of any length.
//
// Roles      a team owns a group: some lanes of a warp, or a CTA for long rows
// Timeline   load what registers hold (all loads under way together), reduce, convert, store; what
//            they do not hold of a long row is read again, from L2
// Order      from the last group to the first: what was written last is what L2 still has
#pragma once

#include "cleave/ptx/sync.h"
#include "cleave/quantize/access.h"
#include "cleave/quantize/reduce_reach.h"

namespace cleave {

/// The threads that share a group.
template <QuantizeConfig C>
struct RowTeam {
  static constexpr bool kWholeCta = C.lanes == 0;

  const uint32_t size = kWholeCta ? blockDim.x : C.lanes;
  const uint32_t rank = threadIdx.x % size;

  /// Number, among all, of this team's group `i` of `batch`.
  CLEAVE_DEVICE uint32_t group(uint32_t i) const { return (blockIdx.x * C.batch + i) * count() + threadIdx.x / size; }

  /// Teams of a CTA.
  CLEAVE_DEVICE uint32_t count() const { return kWholeCta ? 1 : blockDim.x / size; }

  /// Column, within the group, of this thread's access `i`.
  CLEAVE_DEVICE uint32_t col(uint32_t i) const { return (i * size + rank) * C.width; }

  CLEAVE_DEVICE Reach reduce(const Reach& reach) const {
    if constexpr (kWholeCta) {
      return reduce_cta(C.symmetric, reach);
    } else {
      return reduce_lanes<C.lanes>(C.symmetric, reach);
    }
  }
};

template <QuantizeConfig C>
CLEAVE_DEVICE Quantizer given_quantizer(const QuantizeParams& p, const RowGroup& group) {
  return quantizer_with(p.scale.at(group.row >> p.rows_per_scale_log2, group.index),
                        C.symmetric ? 0 : p.zero[group.row * p.zero_stride]);
}

template <QuantizeConfig C>
CLEAVE_DEVICE void write_quantizer(const QuantizeParams& p, const RowGroup& group, const Quantizer& quantizer) {
  p.scale.at(group.row, group.index) = quantizer.scale;
  if constexpr (!C.symmetric) p.zero[group.row * p.zero_stride] = quantizer.zero;
}

template <QuantizeConfig C>
CLEAVE_DEVICE void add_values(Reach& reach, const float (&values)[C.width]) {
  CLEAVE_UNROLL
  for (uint32_t i = 0; i < C.width; ++i) reach.add(C.symmetric, values[i]);
}

/// What registers do not hold of a long row.
template <QuantizeConfig C>
CLEAVE_DEVICE void add_rest(Reach& reach, const QuantizeParams& p, const RowTeam<C>& team, const RowGroup& group) {
  for (uint32_t i = C.hold; team.col(i) < group.size; ++i) {
    float values[C.width];
    load_values<C>(p, group.row, group.col + team.col(i), values);
    add_values<C>(reach, values);
  }
}

template <QuantizeConfig C>
CLEAVE_DEVICE void store_rest(const QuantizeParams& p, const RowTeam<C>& team, const RowGroup& group,
                              const Quantizer& quantizer) {
  for (uint32_t i = C.hold; team.col(i) < group.size; ++i) {
    float values[C.width];
    load_values<C>(p, group.row, group.col + team.col(i), values);
    store_values<C>(p, group.row, group.col + team.col(i), quantizer, values);
  }
}

template <QuantizeConfig C>
CLEAVE_DEVICE void quantize_rows(const QuantizeParams& p) {
  constexpr bool kWholeCta = RowTeam<C>::kWholeCta;
  static_assert(C.batch * C.hold * C.width <= kHeldValues, "more would spill");
  static_assert(C.batch == 1 || !kWholeCta, "a CTA reduces once");
  ptx::launch_dependents();
  ptx::grid_dependency_wait();

  const RowTeam<C> team;
  RowGroup groups[C.batch];
  float held[C.batch][C.hold][C.width] = {};  // zeros reach nowhere
  CLEAVE_UNROLL
  for (uint32_t b = 0; b < C.batch; ++b) {
    const uint32_t number = team.group(b);
    groups[b] = number < p.groups ? row_group(p, p.groups - 1 - number) : RowGroup{};
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.hold; ++i) {
      if (team.col(i) < groups[b].size) load_values<C>(p, groups[b].row, groups[b].col + team.col(i), held[b][i]);
    }
  }

  CLEAVE_UNROLL
  for (uint32_t b = 0; b < C.batch; ++b) {
    const RowGroup& group = groups[b];
    const bool exists = team.group(b) < p.groups;
    Quantizer quantizer;
    if constexpr (C.given_scale) {
      if (exists) quantizer = given_quantizer<C>(p, group);
    } else {
      Reach reach;
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < C.hold; ++i) add_values<C>(reach, held[b][i]);
      if constexpr (kWholeCta) add_rest<C>(reach, p, team, group);
      quantizer = quantizer_for(C.q, C.symmetric, C.ue8m0, team.reduce(reach));
      if (exists && team.rank == 0) write_quantizer<C>(p, group, quantizer);
    }
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < C.hold; ++i) {
      if (team.col(i) < group.size) store_values<C>(p, group.row, group.col + team.col(i), quantizer, held[b][i]);
    }
    if constexpr (kWholeCta) store_rest<C>(p, team, group, quantizer);
  }
}

}  // namespace cleave

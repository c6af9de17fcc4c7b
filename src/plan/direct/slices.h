// How weight gradients that convolve directly split K (cleave/split_k/block_slices.h): into how many slices, which of
// them meet in clusters, and what that costs.
#pragma once

#include <cstdint>
#include <vector>

#include "cleave/config/direct_work.h"
#include "plan/choice/choice.h"

namespace cleave {

/// Cuts each of `blocks` of a weight gradient into slices, and makes room for their partial sums.
void reserve_slices(Choice& choice, uint32_t blocks, uint32_t slices);

/// Whether a weight gradient is in one piece, or in parallel slices, whole clusters of which may meet.
bool has_slices(const Spec& spec, const DeviceInfo& device);

/// Whether clusters can add up what a CTA makes, by four elements.
inline bool can_meet(const GemmConfig& c) {
  return c.cluster.k == 1 || direct_made(c) % 4 == 0;
}

/// How slices share a weight gradient's tiles: each has a run of them, as long as another's, or they take turns.
enum class Deal { runs, turns };

/// The ways to cut a weight gradient's `tiles` that are worth a look, where `spec` says the rest, and an SM has room
/// for `room` CTAs: one piece; slices that fill the GPU, or half of it; and clusters of slices, one, or that many. As
/// many slices as are asked for, each of which has a tile.
std::vector<Spec> sliced_specs(const GemmProblem& problem, const DeviceInfo& device, const Spec& spec, uint32_t blocks,
                               int64_t tiles, uint32_t room, Deal deal);

/// Clusters that run at a time, where an SM has room for `room` CTAs.
double clusters_at_once(uint32_t together, uint32_t room, const DeviceInfo& device);

/// How a choice's CTAs share the SMs: how many are beside each other on one, and in how many turns they come.
struct Turns {
  double beside, turns;
};
Turns turns_of(const Choice& choice, uint32_t room, const DeviceInfo& device);

/// What slices take to meet, in us: those of a cluster; clusters, and slices by themselves, which meet in memory (the
/// factors multiply sums_us).
struct MeetingCosts {
  double cluster, clusters, clusters_factor, slices, slices_factor;
};
double meeting_us(const Choice& choice, const MeetingCosts& costs);

/// What a weight gradient of narrow groups takes, in us, beside its work: the launch; its slices; each turn after the
/// first. Memory has that share of its speed; where CTAs read one sector of each pixel, and L2 does not keep the rest
/// for the others, `lone_share` of it. Work and memory hide each other, but for `beside` of the shorter.
struct GradientCosts {
  double launch;
  MeetingCosts meeting;
  double turn, memory_share, beside, lone_share = 1;
};

/// With so many clocks of work in all turns.
double narrow_gradient_us(const Choice& choice, const DeviceInfo& device, double turns, double clocks,
                          const GradientCosts& costs);

/// Whether slices would be empty, with `tiles` dealt evenly; but for some of the last cluster, which may.
inline bool has_empty_slices(const Spec& spec, int64_t tiles) {
  const int64_t slices = spec.slices - (spec.cluster_k - 1);
  return (slices - 1) * ceil_div<int64_t>(tiles, spec.slices) >= tiles;
}

/// Deals a weight gradient's tiles, of each of `blocks`, to the slices of its spec; false where there are too many.
bool deal_slices(Choice& choice, int64_t tiles, uint32_t blocks);

/// For a CTA's sums to come from, or go to, other CTAs once.
double sums_us(const Choice& choice);

/// Until slices by themselves are added up, from the last CTA's end on (split_k/slice_sums.h).
double slice_sums_us(const Choice& choice);

}  // namespace cleave

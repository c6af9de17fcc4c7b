// What a kernel may do before the launch ahead of it is done.
#pragma once

#include "cleave/config/clusters.h"

namespace cleave {

/// Whether a role can find its first work tile before the launch ahead is done: groups' bounds lie in memory, which
/// must not be read before, and the walk of stream_k leaves the producer no register to keep a tile in.
CLEAVE_HD constexpr bool finds_tile_early(const GemmConfig& c) {
  return c.schedule.grouping == Grouping::none && c.schedule.split != SplitKMode::stream_k;
}

/// Whether the loads of static operands may begin before that.
CLEAVE_HD constexpr bool may_load_early(const GemmConfig& c) {
  return is_persistent(c.family) && finds_tile_early(c) && c.conv.kind == Conv::none;
}
CLEAVE_HD constexpr bool has_static_operand(const GemmConfig& c) {
  return c.operands.static_a || c.operands.static_b;
}
CLEAVE_HD constexpr bool loads_early(const GemmConfig& c) {
  return (c.operands.static_a && !has_weights(c)) || c.operands.static_b;
}

/// Whether each role waits for the launch ahead by itself, once it has found its first work tile: what that takes is
/// then under the other launch's end. Shared loads take the registers that the tile would be kept in, which only an
/// early load is worth.
CLEAVE_HD constexpr bool waits_late(const GemmConfig& c) {
  return finds_tile_early(c) && (sharers(c) == 1 || loads_early(c));
}

/// Whether the lane that asks for TMA's loads makes the barriers of full stages itself, and asks for the first tile's
/// blocks before the CTA's threads meet. Measured for single consumers, whose products are the shortest
/// (docs/notes/2026-11-choice.md); the widest tile leaves no register for it, nor do D's scales beside those of single
/// columns. CTAs of a cluster load into each other's memory, which is theirs once they have met.
CLEAVE_HD constexpr bool loads_before_meeting(const GemmConfig& c) {
  const bool singly = c.epilogue.scaling == Scaling::block && c.scales.rows_b == 1;
  const bool crowded = c.tile.n > 192 || (c.epilogue.has_scale_out && singly);
  return c.warps.consumers == 1 && !crowded && waits_late(c) && !loads_early(c) && cluster_size(c) == 1 &&
         c.conv.kind == Conv::none && !has_weights(c) && c.across.ranks == 1;
}

/// How many blocks at most. Threads that copy can only arrive for all of them at once.
CLEAVE_HD constexpr uint32_t blocks_before_meeting(const GemmConfig& c) {
  return min_of(4u, c.tile.stages);
}

}  // namespace cleave

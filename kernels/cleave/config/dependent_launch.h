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

}  // namespace cleave

// Which operand of a product is the first to leave L2.
#pragma once

#include "cleave/config/gemm_config.h"
#include "cleave/config/output.h"

namespace cleave {

struct LeavesFirst {
  bool a = false, b = false;
};

/// What one tile alone reads, weights of a small batch say, is the first to leave L2: the room is for what others read,
/// and for partial tiles on their way. So it is with two readers, if they read together, as slices do, and nothing that
/// is read more often drives the lines out between them. What a batch broadcasts, its other entries read again.
/// rows, columns: of D, or of the group. broadcast_a, broadcast_b: whether a batch shares the operand.
CLEAVE_HD constexpr LeavesFirst leaves_first(const GemmConfig& c, uint32_t rows, uint32_t columns,
                                             bool broadcast_a = false, bool broadcast_b = false) {
  const uint32_t of_tile = c.tile.m * c.cluster.multicast_m, across = output_columns(c) * c.cluster.multicast_n;
  const bool two = is_sliced(c.schedule.split) && rows <= 2 * of_tile && columns <= 2 * across;
  return {!broadcast_a && (two || columns <= across), !broadcast_b && (two || rows <= of_tile)};
}

}  // namespace cleave

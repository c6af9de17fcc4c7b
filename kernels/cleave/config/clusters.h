// CTAs that work together: they share loads, or K.
#pragma once

#include "cleave/config/output.h"

namespace cleave {

/// CTAs that share loads.
CLEAVE_HD constexpr uint32_t sharers(const GemmConfig& c) {
  return c.cluster.multicast_m * c.cluster.multicast_n;
}

/// CTAs of one cluster (1: no cluster launch).
CLEAVE_HD constexpr uint32_t cluster_size(const GemmConfig& c) {
  return sharers(c) * c.cluster.k;
}

/// Elements of the grouped dimension that one step of the schedule covers (groups.h).
CLEAVE_HD constexpr uint32_t group_step(const GemmConfig& c) {
  switch (c.schedule.grouping) {
    case Grouping::m:
    case Grouping::classes:
      return output_rows(c) * c.cluster.multicast_m;
    case Grouping::n:
      return output_columns(c) * c.cluster.multicast_n;
    default:
      return c.tile.k;
  }
}

}  // namespace cleave

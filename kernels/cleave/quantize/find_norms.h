// Mean and mean square of rows whose norms are cut into squares: the first of two launches, quantize_tiles the second.
// Writes the sum with the residual, which that one reads.
#pragma once

#include "cleave/quantize/quantize_normed.h"

namespace cleave {

template <QuantizeConfig C>
CLEAVE_DEVICE void find_norms(const QuantizeParams& p) {
  static_assert(!C.has_weight && !C.has_bias && !C.has_normed, "the squares' part");
  ptx::launch_dependents();
  ptx::grid_dependency_wait();

  const NormedRow<C> row(p);
  const RowStatistics statistics = find_statistics<C>(p, row);
  if (row.team.group(0) < p.groups && row.team.rank == 0) p.statistics[row.row.row] = statistics;
}

}  // namespace cleave

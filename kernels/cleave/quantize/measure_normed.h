// The scale of all norms of rows: the first of two launches, quantize_normed with that scale the second. Writes the sum
// with the residual, which that one reads.
#pragma once

#include "cleave/quantize/measure.h"
#include "cleave/quantize/quantize_normed.h"

namespace cleave {

template <QuantizeConfig C>
CLEAVE_DEVICE void measure_normed(const QuantizeParams& p) {
  static_assert(!C.given_scale && !C.blocks && !C.has_normed && !C.summed);
  ptx::launch_dependents();
  fetch_weight<C>(p);
  ptx::grid_dependency_wait();

  NormedRow<C> row(p);
  const RowStatistics statistics = find_statistics<C>(p, row);
  row.normalize_held(statistics);
  Reach reach;
  row.for_each_run(statistics,
                   [&](uint32_t i, const typename NormedRow<C>::Values* values) { row.add_run(reach, i, values); });
  join_reaches<C>(p, reach);
}

}  // namespace cleave

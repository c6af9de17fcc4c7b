// A CTA's share of the cells of all columns (direct/columns.h).
#pragma once

#include "cleave/conv/direct_conv.h"
#include "cleave/core/math.h"

namespace cleave {

/// Calls `go_down(column, cell, cells)` for each column of which cells are the slice's: the first one's number, and how
/// many follow each other from it on.
template <class GoDown>
CLEAVE_DEVICE void walk_columns(const DirectShape& shape, uint32_t slice, GoDown go_down) {
  uint32_t next = slice * shape.steps;
  const uint32_t end = min_of(next + shape.steps, shape.tiles);
  while (next < end) {
    uint32_t column = 0, cell = 0;
    shape.rows.divmod(next, column, cell);
    const uint32_t cells = min_of(shape.rows.divisor - cell, end - next);
    go_down(column, cell, cells);
    next += cells;
  }
}

}  // namespace cleave

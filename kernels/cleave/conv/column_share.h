// A CTA's share of the cells of all columns (direct/columns.h).
#pragma once

#include "cleave/conv/direct_conv.h"
#include "cleave/core/math.h"

namespace cleave {

/// Column by column: the first cell's number, and how many follow each other from it on.
class ColumnShare {
 public:
  CLEAVE_HD constexpr ColumnShare(const DirectShape& shape, uint32_t slice)
      : next_(slice * shape.steps), end_(min_of(next_ + shape.steps, shape.tiles)) {}

  CLEAVE_HD constexpr bool has_more() const { return next_ < end_; }

  /// Cells that are left, and the columns that they are of.
  CLEAVE_HD constexpr uint32_t cells() const { return has_more() ? end_ - next_ : 0; }
  CLEAVE_HD constexpr uint32_t columns(const DirectShape& shape) const {
    return has_more() ? (end_ - 1) / shape.rows.divisor - next_ / shape.rows.divisor + 1 : 0;
  }

  CLEAVE_HD constexpr void take(const DirectShape& shape, uint32_t& column, uint32_t& cell, uint32_t& cells) {
    shape.rows.divmod(next_, column, cell);
    cells = min_of(shape.rows.divisor - cell, end_ - next_);
    next_ += cells;
  }

 private:
  uint32_t next_, end_;
};

/// Calls `go_down(column, cell, cells)` for each column of which cells are the slice's.
template <class GoDown>
CLEAVE_HD constexpr void walk_columns(const DirectShape& shape, uint32_t slice, GoDown go_down) {
  ColumnShare share(shape, slice);
  while (share.has_more()) {
    uint32_t column = 0, cell = 0, cells = 0;
    share.take(shape, column, cell, cells);
    go_down(column, cell, cells);
  }
}

}  // namespace cleave

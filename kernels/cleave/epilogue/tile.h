// One tile of D as a thread sees it: where its accumulators belong.
#pragma once

#include "cleave/epilogue/epilogue.h"
#include "cleave/epilogue/fragment.h"
#include "cleave/schedule/class_columns.h"

namespace cleave {

template <GemmConfig C>
struct Tile {
  const Fragment<C>& fragment;
  uint32_t m0, n0;  // first row and column
  uint32_t batch;
  uint32_t group_end;           // past the group's last row (column), where those are grouped
  const ConvClass* conv_class;  // of a convolution
  const ClassColumns* columns;  // of its classes, side by side
  bool empty;                   // its sums are of nothing, however many slices have a share

  /// Past the last row and column of D, or of the tile's group. What is not grouped is read from the
  /// parameters every time: two registers more, and the largest tiles spill.
  CLEAVE_HD uint32_t m_end(const EpilogueParams& p) const {
    return C.grouping == Grouping::m || C.grouping == Grouping::classes ? group_end : p.m;
  }
  CLEAVE_HD uint32_t n_end(const EpilogueParams& p) const {
    return C.grouping == Grouping::n ? group_end : p.n;
  }

  CLEAVE_HD uint32_t row(uint32_t block) const { return m0 + fragment.row(block); }
  CLEAVE_HD uint32_t col(uint32_t block) const { return n0 + fragment.col(block); }

  /// Where a row that the tile counts as `row` lies in D.
  CLEAVE_HD void find_row(uint32_t row, EpilogueLine& line) const {
    if constexpr (scatters(C)) {
      const GridSpot pixel = conv_class->pixels.template locate<C.conv_axes, C.fast_store>(row);
      line.output_row = conv_class->output_row(pixel);
      if constexpr (C.side_by_side) line.edges = edges(conv_class->pixels, pixel);
    }
  }

  /// And a column; the column of D that it is.
  CLEAVE_HD uint32_t find_column(uint32_t col, EpilogueLine& line) const {
    if constexpr (C.side_by_side) {
      const ColumnSpot spot = columns->locate<C.conv_axes, C.fast_store>(col);
      line.output_row = columns->output_row(spot);
      line.edges = columns->edges(spot);
      col = spot.channel;
    }
    line.output_column = col;
    return col;
  }
};

}  // namespace cleave

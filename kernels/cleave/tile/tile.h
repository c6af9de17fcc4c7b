// One tile of D as a thread sees it: where its accumulators belong.
#pragma once

#include "cleave/config/gemm_params.h"
#include "cleave/config/output.h"
#include "cleave/conv/fused_classes.h"
#include "cleave/tile/fragment.h"

namespace cleave {

/// Where a row and a column of the product lie in D, if neighbours in a tile are not neighbours there.
struct OutputOffset {
  uint32_t output_row = 0;  // a row's in D, to which a column of fused classes adds
  uint32_t output_column = 0;
  uint32_t edges = 0;  // the axes at whose end the row is, or at which the column stops
};

template <GemmConfig C>
struct Tile {
  const Fragment<C>& fragment;
  uint32_t m0, n0;  // first row and column
  uint32_t batch;
  uint32_t group_end;           // past the group's last row (column), where those are grouped; or a line's
  const ConvClass* conv_class;  // of a convolution
  const FusedClasses* columns;  // of fused classes
  bool empty;                   // its sums are of nothing, however many slices have a share
  // From a row (column) of D to its place among those of all groups' tiles, one after the other; modulo 2^32.
  uint32_t to_units = 0;

  /// The ends of the rows and columns of D, or of the tile's group. Ungrouped ends are read from the parameters every
  /// time: with two registers more, the largest tiles spill.
  CLEAVE_HD uint32_t m_end(const ProblemSize& size) const { return ends_rows_early(C) ? group_end : size.m; }
  CLEAVE_HD uint32_t n_end(const ProblemSize& size) const {
    return C.schedule.grouping == Grouping::n ? group_end : size.n;
  }

  CLEAVE_HD uint32_t row(uint32_t block) const { return m0 + fragment.row(block); }
  CLEAVE_HD uint32_t col(uint32_t block) const { return n0 + fragment.col(block); }

  /// Finds where the product's row `row` lies in D.
  CLEAVE_HD void find_row(uint32_t row, OutputOffset& offset) const {
    if constexpr (scatters(C)) {
      const PixelCoord pixel = conv_class->pixels.template locate<C.conv.axes, C.conv.fast_store>(row);
      offset.output_row = conv_class->output_row(pixel);
      if constexpr (C.conv.fuses_classes) offset.edges = edges(conv_class->pixels, pixel);
    }
  }

  /// The same for a column; returns its column in D.
  CLEAVE_HD uint32_t find_column(uint32_t col, OutputOffset& offset) const {
    if constexpr (C.conv.fuses_classes) {
      const ColumnCoord coord = columns->pixels.locate<C.conv.axes, C.conv.fast_store>(col);
      offset.output_row = columns->output_row(coord);
      offset.edges = columns->edges(coord);
      col = coord.channel;
    }
    offset.output_column = col;
    return col;
  }
};

}  // namespace cleave

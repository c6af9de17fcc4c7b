// All residue classes of a dgrad (conv_classes.h) fused: they are the columns of one product.
//
// A row is then pixel i * stride of every axis together with its neighbours, one for each residue;
// D's columns are (residues, channel), and K runs over the taps that any class has, in the order of the
// outputs that they meet. Where there are few channels a class alone would leave most of a tile's
// columns empty; fused, an output that is loaded serves all of them. Taps that a class lacks
// read as zeros of the filter, and pixels past the image's end are not stored.
#pragma once

#include "cleave/conv/conv_classes.h"

namespace cleave {

/// The most residues of one axis.
inline constexpr uint32_t kMostResidues = 8;

/// The class of one residue, as part of its axis.
struct ResidueColumns {
  int32_t shift = 0;  // the axis's tap at which the class's first one lies
  int32_t taps = 0;
  int32_t first_tap = 0;  // the filter's, at the class's first
  bool shorter = false;   // it lacks the last pixel that residue 0 has
};

/// What a column is.
struct ColumnCoord {
  uint32_t residue[kConvAxes] = {};
  uint32_t channel = 0;
};

struct FusedClasses {
  FastDivmod per_class;  // columns: channels
  Grid residues;
  ResidueColumns axes[kConvAxes][kMostResidues];
  int32_t tap_step[kConvAxes] = {};     // of the filter, from a tap of a class to its next
  int32_t taps_apart[kConvAxes] = {};   // numbers of the filter's taps
  uint32_t rows_apart[kConvAxes] = {};  // of D, from a pixel to its neighbour

  template <uint32_t Axes, bool Fast>
  CLEAVE_HD constexpr ColumnCoord locate(uint32_t column) const {
    ColumnCoord coord;
    const uint32_t number = divide<Fast>(per_class, column);
    coord.channel = column - number * per_class.divisor;
    const PixelCoord at = residues.locate<Axes, Fast>(number);
    for (uint32_t i = 0; i < kConvAxes; ++i) coord.residue[i] = at.at[i];
    return coord;
  }

  /// The number of the filter's tap at the fused tap `tap`; -1 where the column's class has none.
  CLEAVE_HD constexpr int32_t filter_tap(const ColumnCoord& column, const PixelCoord& tap) const {
    int32_t number = 0;
    for (uint32_t i = 0; i < kConvAxes; ++i) {
      const ResidueColumns& of = axes[i][column.residue[i]];
      const int32_t own = int32_t(tap.at[i]) - of.shift;
      if (own < 0 || own >= of.taps) return -1;
      number += (of.first_tap + own * tap_step[i]) * taps_apart[i];
    }
    return number;
  }

  /// Rows of D from residue 0's pixel to this column's.
  CLEAVE_HD constexpr uint32_t output_row(const ColumnCoord& column) const {
    uint32_t row = 0;
    for (uint32_t i = 0; i < kConvAxes; ++i) row += column.residue[i] * rows_apart[i];
    return row;
  }

  /// A bit for each axis at whose last pixels the column's class has none any more.
  CLEAVE_HD constexpr uint32_t edges(const ColumnCoord& column) const {
    uint32_t bits = 0;
    for (uint32_t i = 0; i < kConvAxes; ++i) bits |= uint32_t(axes[i][column.residue[i]].shorter) << i;
    return bits;
  }
};

/// A bit for each axis at whose last pixel `pixel` is.
CLEAVE_HD constexpr uint32_t edges(const Grid& pixels, const PixelCoord& pixel) {
  uint32_t bits = 0;
  for (uint32_t i = 0; i < kConvAxes; ++i) bits |= uint32_t(pixel.at[i] + 1 == pixels.extent[i]) << i;
  return bits;
}

/// Fuses a dgrad's classes: `fused` is the one class that rows and taps then are of, without
/// tiles. False if there are too many, or if they meet outputs that lie apart (some dilations).
CLEAVE_HD constexpr bool fuse_classes(uint32_t images, const ConvAxisShape (&axes)[kConvAxes], uint32_t channels,
                                      ConvClass& fused, FusedClasses& columns) {
  AxisClass shared[kConvAxes];
  uint32_t filters[kConvAxes] = {}, sizes[kConvAxes] = {};
  for (uint32_t i = 0; i < kConvAxes; ++i) {
    const ConvAxisShape& axis = axes[i];
    filters[i] = uint32_t(axis.filter);
    sizes[i] = uint32_t(axis.size);
    if (axis.stride > int32_t(kMostResidues)) return false;
    shared[i] = residue_class(axis, 0);
    bool any = false;
    int32_t first = 0, end = 0;
    for (int32_t r = 0; r < axis.stride; ++r) {
      const AxisClass c = residue_class(axis, r);
      if (c.taps == 0) continue;
      if (c.tap_step != 1) return false;
      first = any ? min_of(first, c.origin) : c.origin;
      end = any ? max_of(end, c.origin + int32_t(c.taps)) : c.origin + int32_t(c.taps);
      columns.tap_step[i] = c.filter_step;
      any = true;
    }
    shared[i].origin = first;
    shared[i].taps = uint32_t(end - first);
    shared[i].tap_step = 1;
    for (int32_t r = 0; r < axis.stride; ++r) {
      const AxisClass c = residue_class(axis, r);
      columns.axes[i][r] = {.shift = c.origin - first,
                            .taps = int32_t(c.taps),
                            .first_tap = c.first_tap,
                            .shorter = c.pixels < shared[i].pixels};
    }
  }
  fused = combine_axes(shared, images, filters, sizes);
  columns.per_class = FastDivmod(max_of(channels, 1u));
  columns.residues = Grid(uint32_t(axes[0].stride), uint32_t(axes[1].stride), uint32_t(axes[2].stride));
  uint32_t taps_apart = 1, rows_apart = 1;
  for (uint32_t i = kConvAxes; i-- > 0;) {
    columns.taps_apart[i] = int32_t(taps_apart);
    columns.rows_apart[i] = rows_apart;
    taps_apart *= filters[i];
    rows_apart *= sizes[i];
  }
  return true;
}

}  // namespace cleave

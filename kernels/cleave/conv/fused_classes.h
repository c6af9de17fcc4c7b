// All residue classes of a dgrad (conv_classes.h) fused: they are the columns of one product.
//
// A row is then pixel i * stride of every axis together with its neighbours, one for each residue;
// D's columns are (residues, channel), and K runs over the taps that any class has, in the order of the
// outputs that they meet. Where there are few channels a class alone would leave most of a tile's
// columns empty; fused, an output that is loaded serves all of them. Taps that a class lacks
// read as zeros of the filter, and pixels past the image's end are not stored.
//
// Where taps lie beside each other as the pixels do (patches: a filter as wide as its stride), K is one tap
// and the columns are those of the filters' matrix as it lies in memory.
#pragma once

#include "cleave/conv/conv_classes.h"

namespace cleave {

/// The most residues of one axis, but for patches.
inline constexpr uint32_t kMostResidues = 8;

/// The class of one residue, as part of its axis.
struct ResidueColumns {
  int32_t shift = 0;  // the axis's tap at which the class's first one lies
  int32_t taps = 0;
  int32_t first_tap = 0;  // the filter's, at the class's first
};

/// What a column is.
struct ColumnCoord {
  uint32_t residue[kConvAxes] = {};
  uint32_t channel = 0;
};

/// Columns cut into runs of neighbours, each with residues of its own.
struct ColumnRuns {
  FastDivmod length;
  Grid residues;

  template <uint32_t Axes, bool Fast>
  CLEAVE_HD constexpr ColumnCoord locate(uint32_t column) const {
    ColumnCoord coord;
    const Quotient run = divide<Fast>(length, column);
    coord.channel = run.rest;
    const PixelCoord at = residues.locate<Axes, Fast>(run.whole);
    for (uint32_t i = 0; i < kConvAxes; ++i) coord.residue[i] = at.at[i];
    return coord;
  }
};

struct FusedClasses {
  ColumnRuns pixels;  // the channels of one pixel
  ColumnRuns lines;   // of a packed D, as far as pixels follow each other: "channels" of several pixels
  ResidueColumns axes[kConvAxes][kMostResidues];  // of longer axes nothing: those are of patches
  uint32_t whole[kConvAxes] = {};                 // residues of the axis that have the last pixel, too: the first ones
  int32_t tap_stride[kConvAxes] = {};             // of the filter, from a tap of a class to its next
  int32_t filter_stride[kConvAxes] = {};          // numbers of the filter's taps
  uint32_t output_stride[kConvAxes] = {};         // of D, from a pixel to its neighbour

  /// The number of the filter's tap at the fused tap `tap`; -1 where the column's class has none.
  CLEAVE_HD constexpr int32_t filter_tap(const ColumnCoord& column, const PixelCoord& tap) const {
    int32_t number = 0;
    for (uint32_t i = 0; i < kConvAxes; ++i) {
      const ResidueColumns& of = axes[i][column.residue[i]];
      const int32_t own = int32_t(tap.at[i]) - of.shift;
      if (own < 0 || own >= of.taps) return -1;
      number += (of.first_tap + own * tap_stride[i]) * filter_stride[i];
    }
    return number;
  }

  /// Rows of D from residue 0's pixel to this column's.
  CLEAVE_HD constexpr uint32_t output_row(const ColumnCoord& column) const {
    uint32_t row = 0;
    for (uint32_t i = 0; i < kConvAxes; ++i) row += column.residue[i] * output_stride[i];
    return row;
  }

  /// A bit for each axis at whose last pixels the column's class has none any more.
  CLEAVE_HD constexpr uint32_t edges(const ColumnCoord& column) const {
    uint32_t bits = 0;
    for (uint32_t i = 0; i < kConvAxes; ++i) bits |= uint32_t(column.residue[i] >= whole[i]) << i;
    return bits;
  }
};

/// A bit for each axis at whose last pixel `pixel` is.
CLEAVE_HD constexpr uint32_t edges(const Grid& pixels, const PixelCoord& pixel) {
  uint32_t bits = 0;
  for (uint32_t i = 0; i < kConvAxes; ++i) bits |= uint32_t(pixel.at[i] + 1 == pixels.extent[i]) << i;
  return bits;
}

}  // namespace cleave

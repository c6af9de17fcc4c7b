// A convolution of narrow groups, computed pixel by pixel (direct/pixels.h): where a CTA, and each of its
// threads, is in the images that are made, and which gathered pixels meet them.
//
// A thread makes a strip of neighbours along a line, some neighbouring channels of each. Neighbours have fixed places
// to each other, so that which tap of theirs meets which gathered pixel is known to the compiler, also where a data
// gradient has a stride: strips of those begin at multiples of it.
#pragma once

#include "cleave/conv/coord_map.h"
#include "cleave/core/enums.h"

namespace cleave {

/// What an axis is to the compiler.
struct DirectAxis {
  uint32_t taps = 1, stride = 1, dilation = 1;
  // dgrad: the padding, modulo the stride. Windows (config/direct_windows.h), width: elements before one in its first
  // word.
  uint32_t phase = 0;

  /// From outputs and taps to pixels of the image, before which there are `pad` zeros.
  CLEAVE_HD constexpr AxisMap map(int32_t pad) const { return {-pad, int32_t(stride), int32_t(dilation)}; }

  CLEAVE_HD friend constexpr bool operator==(const DirectAxis&, const DirectAxis&) = default;
};

/// What does not meet.
inline constexpr int32_t kApart = -(1 << 30);

/// The gathered pixel that pixel `made` meets at `tap`.
CLEAVE_HD constexpr int32_t gathered_at(Conv kind, const AxisMap& map, uint32_t made, uint32_t tap) {
  if (kind != Conv::dgrad) return map.at(made, tap);
  return map.meets(made, tap) ? map.row(made, tap) : kApart;
}

/// How far after the first gathered pixel (`first_gathered`) lies the one that pixel `j` of a strip meets at `tap`.
CLEAVE_HD constexpr int32_t gathered_at(Conv kind, const DirectAxis& axis, uint32_t j, uint32_t tap) {
  return gathered_at(kind, axis.map(kind == Conv::dgrad ? int32_t(axis.phase) : 0), j, tap);
}

/// The other way round: the tap at which pixel `j` meets the one at distance `at`.
CLEAVE_HD constexpr int32_t tap_between(Conv kind, const DirectAxis& axis, uint32_t j, int32_t at) {
  const int32_t stride = int32_t(axis.stride), dilation = int32_t(axis.dilation);
  const int32_t way = kind == Conv::dgrad ? int32_t(j + axis.phase) - at * stride : at - int32_t(j) * stride;
  const bool meets = way >= 0 && way % dilation == 0 && way / dilation < int32_t(axis.taps);
  return meets ? way / dilation : kApart;
}

/// The pixel that those distances begin at, of a strip that begins at `made` (dgrad: a multiple of the stride).
/// `pad`: zeros before the image.
CLEAVE_HD constexpr int32_t first_gathered(Conv kind, const DirectAxis& axis, uint32_t made, int32_t pad) {
  return kind == Conv::dgrad ? axis.map(pad - int32_t(axis.phase)).row(made, 0) : axis.map(pad).first(made);
}

/// The nearest and the farthest of them, of strips of `length`.
struct GatheredSpan {
  int32_t first = -kApart, last = kApart;

  CLEAVE_HD constexpr uint32_t size() const { return uint32_t(last - first + 1); }
};
CLEAVE_HD constexpr GatheredSpan gathered_span(Conv kind, const DirectAxis& axis, uint32_t length) {
  GatheredSpan span;
  for (uint32_t j = 0; j < length; ++j) {
    for (uint32_t tap = 0; tap < axis.taps; ++tap) {
      const int32_t at = gathered_at(kind, axis, j, tap);
      if (at == kApart) continue;
      span.first = at < span.first ? at : span.first;
      span.last = at > span.last ? at : span.last;
    }
  }
  return span;
}

/// The sizes of a launch. A CTA has a block of channels, some strips along a line, and as many lines as its threads
/// have room for, `steps` times.
struct DirectShape {
  uint32_t channels = 0;      // of all groups
  uint32_t gathered[2] = {};  // height and width
  uint32_t made[2] = {};
  int32_t pad[2] = {};
  uint32_t steps = 1;
  FastDivmod blocks, columns, rows;  // CTAs: of channels, along a line, of an image's lines
  // wgrad, where a CTA has a block of channels and a slice of all images' lines: a slice's lines are `steps`, a line's
  // strips `columns`, an image's lines `rows`.
  uint32_t lines = 0;
  uint32_t tiles = 0;      // windows, whose CTAs go from tile to tile: the numbers that `locate` takes
  uint32_t cells[2] = {};  // spread, shift: of a tile (config/direct_*.h), down and along a line
  // spread, windows, lines: images with depth, whose planes are tiles' images, made ones or (spread, wgrad) gathered
  // ones, of `depths` each; they meet others, of `met_depth`.
  uint32_t met_depth = 1;
  int32_t pad_depth = 0;
  FastDivmod depths;
  uint32_t images = 0;    // shift: of all tiles, and
  uint32_t together = 1;  // of one, whose lines are whole images' if there are several
};

/// The number of a pixel in a tensor of images of `size`. `column` may lie outside of its line.
template <class Number, class Line, class Column>
CLEAVE_HD constexpr Number pixel_number(Number image, Line line, Column column, const uint32_t (&size)[2]) {
  return (image * size[0] + line) * size[1] + column;
}

/// How the slices of a weight gradient are added up: in teams, then team by team.
struct DirectReduction {
  uint32_t slices, team = 1, teams;

  CLEAVE_HD constexpr explicit DirectReduction(uint32_t of) : slices(of) {
    while (team * team < slices) ++team;
    teams = ceil_div(slices, team);
  }
  CLEAVE_HD constexpr uint32_t members(uint32_t of_team) const { return min_of(team, slices - of_team * team); }
  /// What a block of channels has: one for all teams, and one for each.
  CLEAVE_HD constexpr uint32_t counters() const { return 1 + teams; }
};

/// Where a CTA is.
struct DirectTile {
  uint32_t channel = 0, column = 0, row = 0, image = 0;  // the first three count CTAs
};
CLEAVE_HD constexpr DirectTile locate(const DirectShape& shape, uint32_t cta) {
  DirectTile tile;
  uint32_t rest = 0, above = 0;
  shape.blocks.divmod(cta, rest, tile.channel);
  shape.columns.divmod(rest, above, tile.column);
  shape.rows.divmod(above, tile.image, tile.row);
  return tile;
}

}  // namespace cleave

// Weight gradients of few filters, whose images' pixels are K of a product on tensor cores, each read once
// (direct/spread_wgrad.h): columns are all taps of the filters, so that a pixel meets all that it ever meets at once.
//
// A CTA has kSpreadChannels channels of the images, and goes from tile to tile of their pixels. The outputs' gradients
// that a tile meets lie in shared memory, a plane for each filter, strides' gaps filled with zeros: a tap is
// a distance there. Words are pairs, as registers of mma.sync hold them: of a pixel and the one half a tile below it.
#pragma once

#include "cleave/config/gemm_config.h"

namespace cleave {

inline constexpr uint32_t kSpreadChannels = 64;               // of a CTA: a pixel's line of memory,
inline constexpr uint32_t kSpreadVector = 8;                  // of a thread,
inline constexpr uint32_t kSpreadOfWarp = 8 * kSpreadVector;  // and of a warp
inline constexpr uint32_t kSpreadAcross = 8;  // pixels of a step along a line; and as many half a tile below

/// Pixels of a tile along a line, and lines of the upper half.
CLEAVE_HD constexpr uint32_t tap_width(const GemmConfig& c) {
  return c.direct.strips * kSpreadAcross;
}
CLEAVE_HD constexpr uint32_t tap_lines(const GemmConfig& c) {
  return c.tile.m / tap_width(c) / 2;
}

/// How far apart the first and the last tap are.
CLEAVE_HD constexpr uint32_t tap_reach(DirectAxis axis) {
  return (axis.taps - 1) * axis.dilation;
}

/// Words of a line of a plane, and of all its lines: lines lie apart by a quarter of the banks.
CLEAVE_HD constexpr uint32_t tap_line(const GemmConfig& c) {
  return round_up(tap_width(c) + tap_reach(c.direct.width) + 24, 32u) - 24;
}
CLEAVE_HD constexpr uint32_t tap_plane(const GemmConfig& c) {
  return round_up((tap_lines(c) + tap_reach(c.direct.height)) * tap_line(c), 32u);
}

/// Planes: for each tap down the depth those of the filters, and one that says which outputs exist. Words of a stage.
CLEAVE_HD constexpr uint32_t tap_planes(const GemmConfig& c) {
  return c.direct.depth.taps * (c.tile.n + 1);
}
CLEAVE_HD constexpr uint32_t tap_words(const GemmConfig& c) {
  return tap_planes(c) * tap_plane(c);
}

/// Words that are filled, but for planes of what exists, whose words are those of the first filter: neighbours are
/// filters, as in memory.
struct TapWord {
  uint32_t filter, column, line, tap;  // the last one of the depth's
};
CLEAVE_HD constexpr uint32_t tap_fill_width(const GemmConfig& c) {
  return tap_width(c) + tap_reach(c.direct.width);
}
CLEAVE_HD constexpr uint32_t tap_fill_lines(const GemmConfig& c) {
  return tap_lines(c) + tap_reach(c.direct.height);
}
CLEAVE_HD constexpr uint32_t tap_filled(const GemmConfig& c) {
  return c.direct.depth.taps * tap_fill_lines(c) * tap_fill_width(c) * c.tile.n;
}
CLEAVE_HD constexpr TapWord tap_word(const GemmConfig& c, uint32_t number) {
  const uint32_t place = number / c.tile.n, line = place / tap_fill_width(c);
  return {number % c.tile.n, place % tap_fill_width(c), line % tap_fill_lines(c), line / tap_fill_lines(c)};
}
CLEAVE_HD constexpr uint32_t tap_word_at(const GemmConfig& c, const TapWord& word) {
  return (word.tap * (c.tile.n + 1) + word.filter) * tap_plane(c) + word.line * tap_line(c) + word.column;
}

/// Columns: a filter's taps follow each other; blocks of 8 of them that a warp has.
CLEAVE_HD constexpr uint32_t tap_columns(const GemmConfig& c) {
  return c.direct.depth.taps * c.direct.height.taps * c.direct.width.taps * c.tile.n;
}
CLEAVE_HD constexpr uint32_t tap_blocks(const GemmConfig& c) {
  return ceil_div(ceil_div(tap_columns(c), 8u), c.warps.n);
}

/// Where the filter's tap of `column` finds what the tile's first pixel meets there, and whether it exists: words of a
/// stage.
struct TapPlace {
  uint32_t gradient = 0, mask = 0;
};
CLEAVE_HD constexpr TapPlace tap_place(const GemmConfig& c, uint32_t column) {
  if (column >= tap_columns(c)) return {};  // nobody's
  const DirectConfig& d = c.direct;
  const uint32_t of_filter = d.depth.taps * d.height.taps * d.width.taps;
  const uint32_t filter = column / of_filter, tap = column % of_filter;
  const uint32_t t = tap / (d.height.taps * d.width.taps), r = tap / d.width.taps % d.height.taps,
                 s = tap % d.width.taps;
  // Later taps meet earlier outputs.
  const uint32_t at =
      (d.height.taps - 1 - r) * d.height.dilation * tap_line(c) + (d.width.taps - 1 - s) * d.width.dilation;
  const uint32_t planes = t * (c.tile.n + 1);
  return {(planes + filter) * tap_plane(c) + at, (planes + c.tile.n) * tap_plane(c) + at};
}

/// The output `u` places after the one that the first pixel of padding meets first; -1: none, by a stride or at an end.
CLEAVE_HD constexpr int32_t output_at(DirectAxis axis, int32_t u, uint32_t outputs) {
  if (u < 0 || u % int32_t(axis.stride) != 0) return -1;
  const int32_t at = u / int32_t(axis.stride);
  return at < int32_t(outputs) ? at : -1;
}

/// Sums that a CTA has, and where one is kept: as it lies in registers, of `rows` of 16 channels.
struct TapSum {
  uint32_t column, channel;
};
CLEAVE_HD constexpr uint32_t tap_made(const GemmConfig& c) {
  return c.warps.n * tap_blocks(c) * 8 * kSpreadChannels;
}
CLEAVE_HD constexpr uint32_t tap_sum_number(uint32_t block, uint32_t rows, uint32_t i, uint32_t lane) {
  return ((block * (kSpreadChannels / 16) + rows) * 4 + i) * 32 + lane;
}
CLEAVE_HD constexpr TapSum tap_sum(uint32_t number) {
  const uint32_t lane = number % 32, i = number / 32 % 4, rows = number / 128 % (kSpreadChannels / 16);
  const uint32_t block = number / (128 * (kSpreadChannels / 16));
  constexpr uint32_t kRows = kSpreadOfWarp / 16;
  return {block * 8 + lane % 4 * 2 + i % 2,
          rows / kRows * kSpreadOfWarp + lane / 4 * kSpreadVector + rows % kRows * 2 + i / 2};
}

/// Bytes that a CTA asks for.
CLEAVE_HD constexpr uint32_t tap_bytes(const GemmConfig& c) {
  return max_of(2 * tap_words(c), tap_made(c)) * 4;
}

}  // namespace cleave

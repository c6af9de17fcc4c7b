// Convolutions, and data gradients, of groups of few channels on tensor cores (direct/shift.h): gathered
// pixels lie in shared memory as they do in their image, and rows of the product are those that pixels meet, which a
// tap only shifts.
//
// A CTA makes cells: pixels, or (dgrad) as many of them as the stride along each axis, so that what a cell meets is at
// fixed distances from the first (`gathered_at`). A cell's pixels that no tap tells apart are a class, each with taps
// of its own. K of a class runs over its taps and, of each, over eights of a group's channels: what a row of an
// 8 x 8 matrix of ldmatrix has.
#pragma once

#include "cleave/config/direct_work.h"
#include "cleave/config/gemm_config.h"

namespace cleave {

/// Along an axis: pixels of a cell; gathered pixels from a cell to its neighbour; and those that a cell meets.
CLEAVE_HD constexpr uint32_t shift_cell(Conv kind, const DirectAxis& axis) {
  return kind == Conv::dgrad ? axis.stride : 1;
}
CLEAVE_HD constexpr uint32_t shift_step(Conv kind, const DirectAxis& axis) {
  return kind == Conv::dgrad ? 1 : axis.stride;
}
CLEAVE_HD constexpr GatheredSpan shift_span(Conv kind, const DirectAxis& axis) {
  return gathered_span(kind, axis, shift_cell(kind, axis));
}

/// Gathered pixels that `cells` neighbours meet.
CLEAVE_HD constexpr uint32_t shift_reach(Conv kind, const DirectAxis& axis, uint32_t cells) {
  return (cells - 1) * shift_step(kind, axis) + shift_span(kind, axis).size();
}

/// Taps that pixel `j` of a cell meets, and the `nth` of them, from 0.
CLEAVE_HD constexpr uint32_t taps_met(Conv kind, const DirectAxis& axis, uint32_t j) {
  uint32_t count = 0;
  for (uint32_t tap = 0; tap < axis.taps; ++tap) count += gathered_at(kind, axis, j, tap) != kApart;
  return count;
}
CLEAVE_HD constexpr uint32_t tap_met(Conv kind, const DirectAxis& axis, uint32_t j, uint32_t nth) {
  uint32_t tap = 0;
  for (uint32_t met = 0;; ++tap) {
    met += gathered_at(kind, axis, j, tap) != kApart;
    if (met > nth) return tap;
  }
}

/// Eights of a group's channels that a pixel has, gathered.
CLEAVE_HD constexpr uint32_t shift_parts(const GemmConfig& c) {
  return c.tile.k / 8;
}

/// Classes are numbered by their pixels in a cell: along lines, then down.
CLEAVE_HD constexpr uint32_t shift_classes(const GemmConfig& c) {
  return shift_cell(c.conv.kind, c.direct.height) * shift_cell(c.conv.kind, c.direct.width);
}

/// Eights of a class's K.
CLEAVE_HD constexpr uint32_t shift_eights(const GemmConfig& c, uint32_t of_class) {
  const uint32_t across = shift_cell(c.conv.kind, c.direct.width);
  return taps_met(c.conv.kind, c.direct.height, of_class / across) *
         taps_met(c.conv.kind, c.direct.width, of_class % across) * shift_parts(c);
}

/// Where an eight is: the gathered pixel, lines and columns after a cell's first; the tap; which of the group's eights.
struct ShiftEight {
  bool exists = false;
  uint32_t line = 0, column = 0, tap = 0, part = 0;
};
CLEAVE_HD constexpr ShiftEight shift_eight(const GemmConfig& c, uint32_t of_class, uint32_t eight) {
  const Conv kind = c.conv.kind;
  const DirectAxis &height = c.direct.height, &width = c.direct.width;
  const uint32_t down = of_class / shift_cell(kind, width), across = of_class % shift_cell(kind, width);
  if (eight >= shift_eights(c, of_class)) return {};
  const uint32_t tap = eight / shift_parts(c), columns = taps_met(kind, width, across);
  const uint32_t r = tap_met(kind, height, down, tap / columns), s = tap_met(kind, width, across, tap % columns);
  return {.exists = true,
          .line = uint32_t(gathered_at(kind, height, down, r) - shift_span(kind, height).first),
          .column = uint32_t(gathered_at(kind, width, across, s) - shift_span(kind, width).first),
          .tap = r * width.taps + s,
          .part = eight % shift_parts(c)};
}

/// Blocks of 8 columns, and of 16 rows, that a warp has.
CLEAVE_HD constexpr uint32_t shift_blocks(const GemmConfig& c) {
  return c.tile.n / c.warps.n / 8;
}
CLEAVE_HD constexpr uint32_t shift_row_blocks(const GemmConfig& c) {
  return c.tile.m / c.warps.m / 16;
}

/// Gathered channels of all groups. Few filters' (config/direct_lines.h) are one group, whose channels CTAs share.
CLEAVE_HD constexpr uint32_t shift_gathered(const GemmConfig& c, const DirectShape& shape) {
  return c.direct.method == DirectMethod::lines ? shape.channels : shape.channels / c.direct.group * c.tile.k;
}

/// Bytes of a gathered pixel in shared memory, whose channels are those of a CTA's groups; of filters as they lie, each
/// with all taps; and how many filters there are. Odd numbers of 16 bytes: eight neighbours lie in different banks.
CLEAVE_HD constexpr uint32_t shift_channels(const GemmConfig& c) {
  return c.tile.n / c.direct.group * c.tile.k;
}
CLEAVE_HD constexpr uint32_t shift_pixel_bytes(const GemmConfig& c) {
  return (shift_channels(c) / 8 | 1) * 16;
}
CLEAVE_HD constexpr uint32_t shift_filter_elements(const GemmConfig& c) {
  return c.direct.height.taps * c.direct.width.taps * (c.conv.kind == Conv::dgrad ? c.direct.group : c.tile.k);
}
CLEAVE_HD constexpr uint32_t shift_filter_bytes(const GemmConfig& c) {
  return (shift_filter_elements(c) / 8 | 1) * 16;
}
CLEAVE_HD constexpr uint32_t shift_filters(const GemmConfig& c) {
  return c.conv.kind == Conv::dgrad ? shift_channels(c) : c.tile.n;
}

/// wgrad, down the images: what a tap of a line meets, the tap `shift_ahead` further met in the line before, so that a
/// line finds `shift_kept` taps' pixels. As many are held; those of tap `r` of the `line`th have a place.
CLEAVE_HD constexpr uint32_t shift_ahead(const DirectAxis& down) {
  return down.stride % down.dilation == 0 ? min_of(down.stride / down.dilation, down.taps) : down.taps;
}
CLEAVE_HD constexpr uint32_t shift_kept(const DirectAxis& down) {
  const uint32_t kept = down.taps - shift_ahead(down);
  return kept > 2 ? 0 : kept;  // registers
}
CLEAVE_HD constexpr uint32_t shift_held(const DirectAxis& down) {
  return max_of(shift_kept(down), 1u);
}
CLEAVE_HD constexpr uint32_t shift_held_place(const DirectAxis& down, uint32_t line, uint32_t r) {
  return (r + line * shift_ahead(down)) % shift_held(down);
}

/// wgrad: warps that share 16 filters, each with 16 channels that meet them; bytes of an output's gradient.
CLEAVE_HD constexpr uint32_t shift_wgrad_parts(const GemmConfig& c) {
  return ceil_div(max_of(16 / c.direct.group, 1u) * shift_parts(c), 2u);
}
CLEAVE_HD constexpr uint32_t shift_gradient_bytes(const GemmConfig& c) {
  return (c.tile.n / 8 | 1) * 16;
}

/// What lies before the pixels: an eight of zeros, and a word for each row; then filters, but wgrad's.
inline constexpr uint32_t kShiftZeros = 16;
CLEAVE_HD constexpr uint32_t shift_notes_bytes(const GemmConfig& c) {
  return kShiftZeros + c.tile.m * uint32_t(sizeof(uint32_t));
}
CLEAVE_HD constexpr uint32_t shift_filters_bytes(const GemmConfig& c) {
  return shift_filters(c) * shift_filter_bytes(c);
}

/// A row's cell in its tile. Rows past the last have images that no tile has.
struct ShiftCell {
  uint32_t image = 0, line = 0, column = 0;
};
CLEAVE_HD constexpr ShiftCell shift_cell_of(const DirectShape& shape, uint32_t row) {
  const uint32_t line = row / shape.cells[1];
  return {line / shape.cells[0], line % shape.cells[0], row % shape.cells[1]};
}

/// Which pixel of a stage a cell meets first, lines of images one after the other; some, if there is no such cell.
CLEAVE_HD constexpr uint32_t shift_place(const GemmConfig& c, const DirectShape& shape, const ShiftCell& cell) {
  if (cell.image >= shape.together) return 0;
  const uint32_t lines = shift_reach(c.conv.kind, c.direct.height, shape.cells[0]);
  const uint32_t line = cell.image * lines + cell.line * shift_step(c.conv.kind, c.direct.height);
  return line * shift_reach(c.conv.kind, c.direct.width, shape.cells[1]) +
         cell.column * shift_step(c.conv.kind, c.direct.width);
}

/// Gathered pixels of a tile; bytes of those that there is room for; of a stage, of which there are two, wgrad's with
/// outputs' gradients behind the pixels; and what a CTA asks for.
CLEAVE_HD constexpr uint32_t shift_pixels(const GemmConfig& c, const DirectShape& shape) {
  return shape.together * shift_reach(c.conv.kind, c.direct.height, shape.cells[0]) *
         shift_reach(c.conv.kind, c.direct.width, shape.cells[1]);
}
CLEAVE_HD constexpr uint32_t shift_pixels_bytes(const GemmConfig& c) {
  return c.direct.pixels * shift_pixel_bytes(c);
}
CLEAVE_HD constexpr uint32_t shift_stage_bytes(const GemmConfig& c) {
  return shift_pixels_bytes(c) + (c.conv.kind == Conv::wgrad ? c.tile.m * shift_gradient_bytes(c) : 0);
}
CLEAVE_HD constexpr uint32_t shift_bytes(const GemmConfig& c) {
  const uint32_t stages = shift_notes_bytes(c) + 2 * shift_stage_bytes(c);
  if (c.conv.kind != Conv::wgrad) return stages + shift_filters_bytes(c);
  return max_of(stages, direct_made(c) * uint32_t(sizeof(float)));
}

}  // namespace cleave

// Weight gradients of few filters on tensor cores, whose gathered lines stay in registers for all taps down the images
// (direct/lines_wgrad.h).
//
// A tile has an even number of lines of outputs, `direct.strips` strips of eight along each; K of a product are a strip
// of one line and of the next. What those meet of a gathered line, from its first pixel on and from a tap further, are
// matrices of ldmatrix, each of eight pixels by eight channels. Going down two lines, most of them are met again.
#pragma once

#include "cleave/config/direct_shift.h"

namespace cleave {

inline constexpr uint32_t kLineStrip = 8, kLineChannels = 16;  // outputs of a strip; channels of a warp

/// Outputs of a tile along a line, and its lines; gathered pixels that they meet, along a line and down.
CLEAVE_HD constexpr uint32_t line_width(const GemmConfig& c) {
  return c.direct.strips * kLineStrip;
}
CLEAVE_HD constexpr uint32_t line_height(const GemmConfig& c) {
  return c.tile.m / line_width(c);
}
CLEAVE_HD constexpr uint32_t line_columns(const GemmConfig& c) {
  return shift_reach(Conv::wgrad, c.direct.width, line_width(c));
}
CLEAVE_HD constexpr uint32_t line_rows(const GemmConfig& c) {
  return shift_reach(Conv::wgrad, c.direct.height, line_height(c));
}

/// Gathered lines that two lines of outputs meet; those of them that are behind when it goes down by two; the one that
/// the first output meets at `tap`, or the second; and whether any does so, there or farther down.
CLEAVE_HD constexpr uint32_t lines_held(const DirectAxis& down) {
  return (down.taps - 1) * down.dilation + down.stride + 1;
}
CLEAVE_HD constexpr uint32_t lines_left(const DirectAxis& down) {
  return min_of(2 * down.stride, lines_held(down));
}
CLEAVE_HD constexpr uint32_t line_met(const DirectAxis& down, uint32_t second, uint32_t tap) {
  return second * down.stride + tap * down.dilation;
}
CLEAVE_HD constexpr bool is_line_met(const DirectAxis& down, uint32_t line) {
  for (uint32_t tap = 0; tap < down.taps; ++tap) {
    for (uint32_t second = 0; second < 2; ++second) {
      const uint32_t at = line_met(down, second, tap);
      if (line >= at && (line - at) % (2 * down.stride) == 0) return true;
    }
  }
  return false;
}

/// Registers for what a thread keeps of those lines, with what it loads at a time; and for its sums.
CLEAVE_HD constexpr uint32_t line_words(const DirectConfig& d) {
  return ((lines_held(d.height) - lines_left(d.height)) * d.width.taps + lines_left(d.height)) * 2;
}
CLEAVE_HD constexpr uint32_t line_sums(const GemmConfig& c) {
  return c.direct.height.taps * c.direct.width.taps * ceil_div(c.tile.n, 8u) * 4;
}

/// Bytes that are copied at once of the outputs' gradients, whose pixels follow each other without gaps; those of a
/// tile's line, and of all its lines. Registers of filters that there are not are read, too.
CLEAVE_HD constexpr uint32_t line_piece(uint32_t filters) {
  return filters % 8 == 0 ? 16 : filters % 4 == 0 ? 8 : 4;
}
CLEAVE_HD constexpr uint32_t line_gradient_bytes(const GemmConfig& c) {
  return line_width(c) * c.tile.n * 2;
}
CLEAVE_HD constexpr uint32_t line_gradients_bytes(const GemmConfig& c) {
  return line_height(c) * line_gradient_bytes(c) + 32;
}

/// Bytes of the gathered pixels, which come first in a stage; of a stage, of which there are two; and of a CTA.
CLEAVE_HD constexpr uint32_t line_pixels_bytes(const GemmConfig& c) {
  return line_rows(c) * line_columns(c) * shift_pixel_bytes(c);
}
CLEAVE_HD constexpr uint32_t line_stage_bytes(const GemmConfig& c) {
  return line_pixels_bytes(c) + line_gradients_bytes(c);
}
CLEAVE_HD constexpr uint32_t lines_bytes(const GemmConfig& c) {
  return max_of(kShiftZeros + 2 * line_stage_bytes(c), direct_made(c) * uint32_t(sizeof(float)));
}

/// What a thread's sum `i` of an eight of filters is of: a channel of its warp's, and a filter.
struct StripSum {
  uint32_t channel, filter;
};
CLEAVE_HD constexpr StripSum strip_sum(uint32_t lane, uint32_t eight, uint32_t i) {
  return {lane / 4 + i / 2 * 8, eight * 8 + lane % 4 * 2 + i % 2};
}

}  // namespace cleave

// Convolutions of few gathered channels, whose images lie in shared memory line by line (direct/windows.h): the rows
// of the product are windows, what a filter sees of an image. A data gradient of stride 1 is such a convolution, too, of
// the outputs' gradients, whose filters' taps are counted from the last.
//
// The taps of a line of the filter are neighbours in the image, channels and all: a window is a few runs of elements,
// one a line. K takes them one after the other, each in whole groups of 8 elements, which a register of mma.sync never
// leaves. Registers hold pairs of elements, so a run begins at an even element of the image's line: before an odd one
// there is a gap (`DirectAxis::phase`), and what is in a group but in no window counts as 0.
#pragma once

#include "cleave/config/direct_work.h"
#include "cleave/config/gemm_config.h"

namespace cleave {

inline constexpr uint32_t kWindowStrip = 32;  // outputs of a warp, neighbours along a line

/// Elements of the image from a window to its neighbour.
CLEAVE_HD constexpr uint32_t window_step(const DirectConfig& d) {
  return d.width.stride * d.vector;
}

/// Elements of K for a line of the filter, and for all of it, plane by plane.
CLEAVE_HD constexpr uint32_t window_run(const DirectConfig& d) {
  return round_up(d.width.phase + d.width.taps * d.vector, 8u);
}
CLEAVE_HD constexpr uint32_t window_depth(const DirectConfig& d) {
  return round_up(d.depth.taps * d.height.taps * window_run(d), 16u);
}

/// Whether a thread's columns are neighbours that it stores at once. Of 32 columns (or the last 16) a thread has two of
/// each 8: so filters lie in another order.
CLEAVE_HD constexpr bool deals_windows(const GemmConfig& c) {
  return c.store.run_bytes > 0 && !c.epilogue.has_c && !c.epilogue.function.given;
}
/// Where column `column` of a tile lies among its filters.
CLEAVE_HD constexpr uint32_t window_filter_row(const GemmConfig& c, uint32_t column) {
  if (!deals_windows(c)) return column;
  const uint32_t first = column / 32 * 32, own = c.tile.n - first < 32 ? 4 : 8;  // a thread's neighbours
  const uint32_t thread = (column - first) / own, at = (column - first) % own;
  return first + at / 2 * 8 + thread * 2 + at % 2;
}

/// Bytes of lines that are copied at once: none is half in an image.
CLEAVE_HD constexpr uint32_t window_piece(const DirectConfig& d) {
  return d.vector % 8 == 0 ? 16 : d.vector % 4 == 0 ? 8 : 4;
}

/// Elements of a filter, of its channel.
CLEAVE_HD constexpr uint32_t window_filter_elements(const DirectConfig& d) {
  return d.depth.taps * d.height.taps * d.width.taps * d.vector;
}

/// Which element of a filter, whose lines lie behind each other, K's element `k` is; -1: of none.
CLEAVE_HD constexpr int32_t filter_element(DirectConfig d, uint32_t k) {
  const uint32_t line = k / window_run(d), across = d.width.taps * d.vector;
  const uint32_t at = k % window_run(d) - d.width.phase;  // wraps before the run
  return line < d.depth.taps * d.height.taps && at < across ? int32_t(line * across + at) : -1;
}

/// The first word of the lines that a CTA reads, whose first output along a line is `column`. `pad`: zeros before the
/// line.
CLEAVE_HD constexpr int32_t window_first_word(DirectConfig d, uint32_t column, int32_t pad) {
  return (d.width.map(pad).first(column) * int32_t(d.vector) - int32_t(d.width.phase)) / 2;
}

/// Bytes of a filter in shared memory: ldmatrix reads eight of them at once from different banks.
CLEAVE_HD constexpr uint32_t window_filter_bytes(const DirectConfig& d) {
  return (window_depth(d) / 8 | 1) * 16;
}

/// Lines of outputs of a CTA; lines of the image that their windows see, of each plane; and words of such a line, in whole pieces,
/// one more than the last window ends in, since windows at odd elements are read as two words.
CLEAVE_HD constexpr uint32_t window_rows(const GemmConfig& c) {
  return c.tile.m / (c.direct.strips * kWindowStrip);
}
CLEAVE_HD constexpr uint32_t window_lines(const GemmConfig& c) {
  return (window_rows(c) - 1) * c.direct.height.stride + (c.direct.height.taps - 1) * c.direct.height.dilation + 1;
}
CLEAVE_HD constexpr uint32_t window_words(const GemmConfig& c) {
  const uint32_t elements = (c.direct.strips * kWindowStrip - 1) * window_step(c.direct) + window_run(c.direct);
  return round_up(elements / 2 + 1, window_piece(c.direct) / 4);
}

/// Bytes of shared memory: all filters of a CTA, and then two stages of lines.
CLEAVE_HD constexpr uint32_t window_filters_bytes(const GemmConfig& c) {
  return c.tile.n * window_filter_bytes(c.direct);
}
CLEAVE_HD constexpr uint32_t window_stage_bytes(const GemmConfig& c) {
  return round_up(c.direct.depth.taps * window_lines(c) * window_words(c) * 4, 16u);
}

/// wgrad: blocks of 16 elements of K that a warp has; and bytes of a pixel of the outputs' gradients in shared memory.
CLEAVE_HD constexpr uint32_t window_row_blocks(const GemmConfig& c) {
  return ceil_div(window_depth(c.direct) / 16, c.warps.m);
}
CLEAVE_HD constexpr uint32_t window_gradient_bytes(const GemmConfig& c) {
  return (c.tile.n / 8 | 1) * 16;
}

/// What a CTA asks for.
CLEAVE_HD constexpr uint32_t window_bytes(const GemmConfig& c) {
  if (c.conv.kind != Conv::wgrad) return window_filters_bytes(c) + 2 * window_stage_bytes(c);
  const uint32_t stages = 2 * (window_stage_bytes(c) + c.tile.m * window_gradient_bytes(c));
  return max_of(stages, direct_made(c) * uint32_t(sizeof(float)));
}

}  // namespace cleave

// How a convolution's pixels fall into the classes of conv/conv_classes.h. Its numbers are sound: they break no rule of
// `validate`.
#pragma once

#include "cleave/conv/conv_classes.h"
#include "cleave/conv_layout.h"

namespace cleave {

/// The most classes of one launch: strides up to 8 x 8, or 4 x 4 x 4. More of them are several launches.
inline constexpr uint32_t kMostClasses = 64;

/// One class of one axis.
struct AxisClass {
  uint32_t pixels = 0, taps = 0;
  AxisMap map;
  int32_t first_tap = 0, filter_stride = 1;
  uint32_t first_output = 0, output_stride = 1;
};

/// From outputs and taps to pixels of the image.
constexpr AxisMap forward_map(const ConvAxis& axis) {
  return {.origin = -axis.pad_begin, .row_stride = axis.stride, .tap_stride = axis.dilation};
}

/// fprop, wgrad: rows are outputs.
constexpr AxisClass forward_class(const ConvAxis& axis) {
  return {.pixels = uint32_t(outputs(axis)), .taps = uint32_t(axis.filter), .map = forward_map(axis)};
}

/// dgrad: rows are the pixels `residue`, residue + stride, ... of the image.
constexpr AxisClass residue_class(const ConvAxis& axis, int32_t residue) {
  AxisClass c;
  if (residue >= axis.size) return c;
  c.pixels = ceil_div(uint32_t(axis.size - residue), uint32_t(axis.stride));
  c.first_output = uint32_t(residue);
  c.output_stride = uint32_t(axis.stride);
  const int32_t common = int32_t(greatest_common_divisor(uint32_t(axis.stride), uint32_t(axis.dilation)));
  const int32_t step = axis.stride / common;  // from a tap of the class to its next
  const AxisMap forward = forward_map(axis);
  int32_t first = 0;
  while (first < min_of(step, axis.filter) && !forward.meets(residue, first)) ++first;
  if (first >= min_of(step, axis.filter)) return c;
  c.taps = ceil_div(uint32_t(axis.filter - first), uint32_t(step));
  // Turned round, so that later taps meet later outputs.
  const int32_t last = first + int32_t(c.taps - 1) * step;
  c.first_tap = last;
  c.filter_stride = -step;
  c.map.origin = forward.row(residue, last);
  c.map.tap_stride = axis.dilation / common;
  return c;
}

/// The class that is `axes`' together. `filters`: taps of the whole filter along each axis; `sizes`:
/// of the tensor that D's rows are pixels of.
constexpr ConvClass combine_axes(const AxisClass (&axes)[kConvAxes], uint32_t images,
                                 const uint32_t (&filters)[kConvAxes], const uint32_t (&sizes)[kConvAxes]) {
  ConvClass c;
  c.pixels = Grid(axes[0].pixels, axes[1].pixels, axes[2].pixels);
  c.taps = Grid(axes[0].taps, axes[1].taps, axes[2].taps);
  c.rows = images * c.pixels.size;
  uint32_t tap_count = 1, output_count = 1;
  for (uint32_t i = kConvAxes; i-- > 0;) {
    c.origin[i] = axes[i].map.origin;
    c.row_stride[i] = axes[i].map.row_stride;
    c.tap_stride[i] = axes[i].map.tap_stride;
    c.first_tap += uint32_t(axes[i].first_tap) * tap_count;
    c.filter_stride[i] = axes[i].filter_stride * int32_t(tap_count);
    c.first_output += axes[i].first_output * output_count;
    c.output_stride[i] = axes[i].output_stride * output_count;
    tap_count *= filters[i];
    output_count *= sizes[i];
  }
  c.outputs_per_image = output_count;
  return c;
}

/// How many residues of an axis have a pixel, and so a class.
constexpr uint32_t residues(const ConvAxis& axis) {
  return uint32_t(min_of(axis.stride, axis.size));
}

/// Class `number` of a dgrad, of as many as the product of its axes' residues; the only one of another kind.
constexpr ConvClass make_class(const ConvLayout& conv, uint32_t number) {
  const bool strided = conv.kind == Conv::dgrad;
  AxisClass classes[kConvAxes];
  uint32_t filters[kConvAxes] = {}, sizes[kConvAxes] = {};
  for (uint32_t i = kConvAxes; i-- > 0;) {
    const ConvAxis& axis = conv.axes[i];
    classes[i] = strided ? residue_class(axis, int32_t(number % residues(axis))) : forward_class(axis);
    filters[i] = uint32_t(axis.filter);
    sizes[i] = strided ? uint32_t(axis.size) : classes[i].pixels;
    if (strided) number /= residues(axis);
  }
  return combine_axes(classes, uint32_t(conv.images), filters, sizes);
}

/// Long tiles that come last would leave most of a GPU idle.
constexpr bool is_deeper(const ConvClass& a, const ConvClass& b) {
  return a.taps.size > b.taps.size;
}

/// Gives the classes their tiles of `tile_m` rows and their k blocks, `per_tap` for each tap or, of
/// flattened taps, one for `tile_k` of taps x `channels`.
constexpr void deal_tiles(ConvClass* classes, uint32_t count, uint32_t tile_m, uint32_t tile_k, uint32_t channels,
                          bool flattened) {
  uint32_t tiles = 0, line = 0;
  for (uint32_t i = 0; i < count; ++i) {
    ConvClass& c = classes[i];
    c.tiles = ceil_div(c.rows, tile_m);
    c.k_blocks = flattened ? ceil_div(c.taps.size * channels, tile_k) : c.taps.size * ceil_div(channels, tile_k);
    c.tiles_before = tiles;
    c.line_before = line;
    tiles += c.tiles;
    line += c.tiles * c.k_blocks;
  }
}

}  // namespace cleave

// How the classes of a dgrad become the columns of one product (conv/fused_classes.h).
#pragma once

#include "cleave/conv/fused_classes.h"
#include "launch/residue_classes.h"

namespace cleave {

/// Whether each pixel of an image is met by one tap, in the order of the filter's: each output has a patch of its own.
constexpr bool are_patches(const ConvLayout& conv) {
  for (const ConvAxis& axis : conv.axes)
    if (axis.filter != axis.stride || axis.pad_begin != 0 || (axis.filter > 1 && axis.dilation != 1)) return false;
  return true;
}

/// Fuses a dgrad's classes: `fused` is the one class that rows and taps then are of, without
/// tiles. False if there are too many, or if they meet outputs that lie apart (some dilations).
constexpr bool fuse_classes(const ConvLayout& conv, ConvClass& fused, FusedClasses& columns) {
  AxisClass shared[kConvAxes];
  uint32_t filters[kConvAxes] = {}, sizes[kConvAxes] = {}, residues[kConvAxes] = {};
  const bool patches = are_patches(conv);
  const uint32_t channels = uint32_t(conv.channels);
  for (uint32_t i = 0; i < kConvAxes; ++i) {
    const ConvAxis& axis = conv.axes[i];
    filters[i] = uint32_t(axis.filter);
    sizes[i] = uint32_t(axis.size);
    residues[i] = uint32_t(axis.stride);
    shared[i] = residue_class(axis, 0);
    columns.whole[i] = uint32_t(max_of(axis.size - 1, 0) % axis.stride + 1);
    if (axis.stride > int32_t(kMostResidues)) {
      if (!patches) return false;
      continue;
    }
    bool any = false;
    int32_t first = 0, end = 0;
    for (int32_t r = 0; r < axis.stride; ++r) {
      const AxisClass c = residue_class(axis, r);
      if (c.taps == 0) continue;
      if (c.map.tap_stride != 1) return false;
      first = any ? min_of(first, c.map.origin) : c.map.origin;
      end = any ? max_of(end, c.map.origin + int32_t(c.taps)) : c.map.origin + int32_t(c.taps);
      columns.tap_stride[i] = c.filter_stride;
      any = true;
    }
    shared[i].map = {.origin = first};
    shared[i].taps = uint32_t(end - first);
    for (int32_t r = 0; r < axis.stride; ++r) {
      const AxisClass c = residue_class(axis, r);
      columns.axes[i][r] = {.shift = c.map.origin - first, .taps = int32_t(c.taps), .first_tap = c.first_tap};
    }
  }
  fused = combine_axes(shared, uint32_t(conv.images), filters, sizes);
  columns.pixels = {FastDivmod(max_of(channels, 1u)), Grid(residues[0], residues[1], residues[2])};
  columns.lines = columns.pixels;
  if (columns.whole[2] == residues[2])
    columns.lines = {FastDivmod(max_of(channels * residues[2], 1u)), Grid(residues[0], residues[1], 1)};
  uint32_t tap_count = 1, output_count = 1;
  for (uint32_t i = kConvAxes; i-- > 0;) {
    columns.filter_stride[i] = int32_t(tap_count);
    columns.output_stride[i] = output_count;
    tap_count *= filters[i];
    output_count *= sizes[i];
  }
  return true;
}

}  // namespace cleave

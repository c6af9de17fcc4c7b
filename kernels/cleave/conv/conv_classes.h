// The pixels of a convolution, in residue classes.
//
// dgrad asks, for a pixel h of the image, which taps r reach it from an output p:
//
//   p * stride + r * dilation - pad = h
//
// Only taps with r * dilation = h + pad (mod stride) do, so pixels of one residue share their taps.
// Within such a class pixels and outputs advance together: it is a convolution of stride 1 of dy with
// those taps, turned round. So every class has numbers of its own (pixels, taps, depth of K), all of
// them known to the host: divisors become constants of the launch, each class has just the tiles that
// it needs, the deepest classes go first, and classes without taps only store. With as many axes, a
// class is one class of each. Dilation and padding on one side only enter the congruence alone.
//
// fprop, wgrad and a dgrad of stride 1 are one class. All know their operand by the same rule (coord_map.h).
//
// launch/residue_classes.h finds them. Host+device: the kernels, the CPU backend and the tests share every line.
#pragma once

#include "cleave/conv/coord_map.h"

namespace cleave {

/// Where threads put vectors together from narrower reads, places along an axis are numbers of 16 bits: sizes and
/// the ways to taps are less than the first, pixels less than twice that, and one that far below any
/// tap is none, wherever the pixel is.
inline constexpr int32_t kMostPackedPixels = 1 << 14, kNoPackedTap = -2 * kMostPackedPixels;

/// A tap and a channel of it.
struct TapChannel {
  PixelCoord tap;
  uint32_t channel = 0;
  bool exists = false;
};

struct ConvClass {
  uint32_t rows = 0;  // pixels of all images
  Grid pixels, taps;  // of one image; of the class (size 0: it only stores)
  int32_t origin[kConvAxes] = {}, row_stride[kConvAxes] = {1, 1, 1}, tap_stride[kConvAxes] = {1, 1, 1};

  uint32_t first_tap = 0;  // number, in the filter, of the class's tap 0
  int32_t filter_stride[kConvAxes] = {};

  // Output: D. Its row of the class's pixel 0; rows of an image, and from a pixel to its next.
  uint32_t first_output = 0, outputs_per_image = 0;
  uint32_t output_stride[kConvAxes] = {};

  // Its part of the schedule.
  uint32_t tiles_before = 0;  // along M, of earlier classes
  uint32_t tiles = 0;         // along M
  uint32_t k_blocks = 0;      // of a tile
  uint32_t line_before = 0;   // k blocks of all earlier tiles of one column of tiles

  /// From its pixels and taps to the gathered tensor. What lies outside of that is zeros.
  CLEAVE_HD constexpr AxisMap axis(uint32_t i) const { return {origin[i], row_stride[i], tap_stride[i]}; }

  /// Element `number` of all taps' channels, `per_tap` each, or a block of them.
  template <uint32_t Axes, bool Fast>
  CLEAVE_HD constexpr TapChannel find_tap(const FastDivmod& per_tap, uint32_t number) const {
    const Quotient tap = divide<Fast>(per_tap, number);
    TapChannel found;
    found.channel = tap.rest;
    found.exists = tap.whole < taps.size;
    found.tap = taps.locate<Axes, Fast>(tap.whole);
    return found;
  }

  CLEAVE_HD constexpr uint32_t filter_tap(const PixelCoord& tap) const {
    return first_tap + tap.at[0] * filter_stride[0] + tap.at[1] * filter_stride[1] + tap.at[2] * filter_stride[2];
  }

  /// The row of D that a pixel of the class is.
  CLEAVE_HD constexpr uint32_t output_row(const PixelCoord& pixel) const {
    return first_output + pixel.image * outputs_per_image + pixel.at[0] * output_stride[0] +
           pixel.at[1] * output_stride[1] + pixel.at[2] * output_stride[2];
  }
};

/// The classes of one launch, the deepest first.
struct ClassTable {
  const ConvClass* classes = nullptr;
  uint32_t count = 0;

  /// The first `i` + 1 classes': tiles along M, and k blocks of the tiles of one column.
  CLEAVE_HD constexpr uint32_t tiles_until(uint32_t i) const { return classes[i].tiles_before + classes[i].tiles; }
  CLEAVE_HD constexpr uint32_t line_until(uint32_t i) const {
    return classes[i].line_before + classes[i].tiles * classes[i].k_blocks;
  }
};

}  // namespace cleave

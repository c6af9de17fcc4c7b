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
// fprop, wgrad and a dgrad of stride 1 are one class. All know their operand by the same rule:
//
//   pixel of the gathered tensor = origin + row * row_step + tap * tap_step
//
// launch/residue_classes.h finds them. Host+device: the kernels, the CPU backend and the tests share every line.
#pragma once

#include "cleave/core/fast_divmod.h"
#include "cleave/core/math.h"

namespace cleave {

/// Depth, height, width.
inline constexpr uint32_t kConvAxes = 3;

/// Where threads put vectors together from narrower reads, places along an axis are numbers of 16 bits: sizes and
/// the ways to taps are less than the first, pixels less than twice that, and one that far below any
/// tap is none, wherever the pixel is.
inline constexpr int32_t kMostPackedPixels = 1 << 14, kNoPackedTap = -2 * kMostPackedPixels;

/// `n` / the divisor, in the way that the kernel was made for (Division).
template <bool Fast>
CLEAVE_HD constexpr uint32_t divide(const FastDivmod& divisor, uint32_t n) {
  return Fast ? divisor.quotient(n) : n / divisor.divisor;
}

/// A place in a grid of images: a pixel, or (with image 0) a tap.
struct PixelCoord {
  uint32_t image = 0;
  uint32_t at[kConvAxes] = {};
};

/// How many places a grid has, and how they are numbered: width fastest.
struct Grid {
  uint32_t size = 0;  // of one image
  uint32_t extent[kConvAxes] = {1, 1, 1};
  FastDivmod per_image, per_plane, per_line;

  Grid() = default;
  CLEAVE_HD constexpr Grid(uint32_t depth, uint32_t height, uint32_t width)
      : size(depth * height * width),
        extent{depth, height, width},
        per_image(max_of(size, 1u)),
        per_plane(max_of(height * width, 1u)),
        per_line(max_of(width, 1u)) {}

  /// `Axes`: 2 where there is no depth.
  template <uint32_t Axes, bool Fast>
  CLEAVE_HD constexpr PixelCoord locate(uint32_t number) const {
    PixelCoord coord;
    coord.image = divide<Fast>(per_image, number);
    uint32_t rest = number - coord.image * per_image.divisor;
    if (Axes == 3) {
      coord.at[0] = divide<Fast>(per_plane, rest);
      rest -= coord.at[0] * per_plane.divisor;
    }
    coord.at[1] = divide<Fast>(per_line, rest);
    coord.at[2] = rest - coord.at[1] * per_line.divisor;
    return coord;
  }
};

struct ConvClass {
  uint32_t rows = 0;  // pixels of all images
  Grid pixels, taps;  // of one image; of the class (size 0: it only stores)
  int32_t origin[kConvAxes] = {}, row_step[kConvAxes] = {1, 1, 1}, tap_step[kConvAxes] = {1, 1, 1};

  uint32_t first_tap = 0;  // number, in the filter, of the class's tap 0
  int32_t filter_step[kConvAxes] = {};

  // Output: D. Its row of the class's pixel 0; rows of an image, and from a pixel to its next.
  uint32_t first_output = 0, outputs_per_image = 0;
  uint32_t output_step[kConvAxes] = {};

  // Its part of the schedule.
  uint32_t tiles_before = 0;  // along M, of earlier classes
  uint32_t tiles = 0;         // along M
  uint32_t depth = 0;         // k blocks of a tile
  uint32_t line_before = 0;   // k blocks of all earlier tiles of one column of tiles

  /// Where a pixel of the class at a tap lies along `axis`. Outside the tensor: a zero.
  CLEAVE_HD constexpr int32_t gathered_at(const PixelCoord& pixel, const PixelCoord& tap, uint32_t axis) const {
    return origin[axis] + int32_t(pixel.at[axis]) * row_step[axis] + int32_t(tap.at[axis]) * tap_step[axis];
  }

  CLEAVE_HD constexpr uint32_t filter_tap(const PixelCoord& tap) const {
    return first_tap + tap.at[0] * filter_step[0] + tap.at[1] * filter_step[1] + tap.at[2] * filter_step[2];
  }

  /// The row of D that a pixel of the class is.
  CLEAVE_HD constexpr uint32_t output_row(const PixelCoord& pixel) const {
    return first_output + pixel.image * outputs_per_image + pixel.at[0] * output_step[0] +
           pixel.at[1] * output_step[1] + pixel.at[2] * output_step[2];
  }
};

/// The classes of one launch, the deepest first.
struct ClassTable {
  const ConvClass* classes = nullptr;
  uint32_t count = 0;

  /// The first `i` + 1 classes': tiles along M, and k blocks of the tiles of one column.
  CLEAVE_HD constexpr uint32_t tiles_until(uint32_t i) const { return classes[i].tiles_before + classes[i].tiles; }
  CLEAVE_HD constexpr uint32_t line_until(uint32_t i) const {
    return classes[i].line_before + classes[i].tiles * classes[i].depth;
  }
};

}  // namespace cleave

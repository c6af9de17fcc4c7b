// The coordinate map of a convolution: which pixel of the gathered tensor (x; of dgrad, dy) a row of the product meets
// at a tap, for loaders, stores, the direct kernels, the CPU backend and tensor maps alike.
//
//   row -> pixel: image, depth, height, width  Grid::locate; k -> tap as well
//   pixel, tap -> where they meet              AxisMap::at, axis by axis
//   whether a pixel is there, or padding       is_inside
//
// Forward, an output o and a tap t meet at o * stride + t * dilation - pad. Data gradients take the same map the other
// way round, class by class (conv_classes.h) or pixel by pixel (direct_conv.h).
//
// Host+device: the kernels, the CPU backend and the tests share every line.
#pragma once

#include "cleave/core/fast_divmod.h"
#include "cleave/core/math.h"

namespace cleave {

/// Depth, height, width.
inline constexpr uint32_t kConvAxes = 3;

/// `n` / the divisor, in the way that the kernel was made for (Division), and what is left of it.
struct Quotient {
  uint32_t whole, rest;
};
template <bool Fast>
CLEAVE_HD constexpr Quotient divide(const FastDivmod& divisor, uint32_t n) {
  const uint32_t whole = Fast ? divisor.quotient(n) : n / divisor.divisor;
  return {whole, n - whole * divisor.divisor};
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
    const Quotient of_images = divide<Fast>(per_image, number);
    const Quotient of_planes = Axes == 3 ? divide<Fast>(per_plane, of_images.rest) : Quotient{0, of_images.rest};
    const Quotient of_lines = divide<Fast>(per_line, of_planes.rest);
    return {of_images.whole, {of_planes.whole, of_lines.whole, of_lines.rest}};
  }
};

/// Whether a place lies inside of the tensor along an axis; one before its begin is, unsigned, far beyond its end.
CLEAVE_HD constexpr bool is_inside(int32_t at, uint32_t extent) {
  return uint32_t(at) < extent;
}

/// Along one axis, where rows and taps meet in the gathered tensor, inside or out.
struct AxisMap {
  int32_t origin = 0, row_stride = 1, tap_stride = 1;

  /// At tap 0, the way from there, and both.
  CLEAVE_HD constexpr int32_t first(uint32_t row) const { return int32_t(row) * row_stride + origin; }
  CLEAVE_HD constexpr int32_t way(uint32_t tap) const { return int32_t(tap) * tap_stride; }
  CLEAVE_HD constexpr int32_t at(uint32_t row, uint32_t tap) const {
    return int32_t(row) * row_stride + way(tap) + origin;
  }

  /// The other way round: whether any row meets `place` at `tap`, and which.
  CLEAVE_HD constexpr bool meets(uint32_t place, uint32_t tap) const { return from(place, tap) % row_stride == 0; }
  CLEAVE_HD constexpr int32_t row(uint32_t place, uint32_t tap) const { return from(place, tap) / row_stride; }

 private:
  CLEAVE_HD constexpr int32_t from(uint32_t place, uint32_t tap) const { return int32_t(place) - origin - way(tap); }
};

}  // namespace cleave

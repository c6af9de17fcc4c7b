// A convolution's numbers, and what they count.
#pragma once

#include <cstdint>

#include "cleave/core/api.h"
#include "cleave/core/enums.h"
#include "cleave/core/saturate.h"

namespace cleave {

/// One spatial dimension of a convolution. Output o and tap t meet at pixel
/// o * stride + t * dilation - pad_begin of the image.
struct ConvAxis {
  int32_t size = 1;    ///< pixels of the image, without padding
  int32_t filter = 1;  ///< taps
  int32_t stride = 1;
  int32_t pad_begin = 0, pad_end = 0;  ///< zeros before and after the image
  int32_t dilation = 1;                ///< pixels from one tap to the next

  friend bool operator==(const ConvAxis&, const ConvAxis&) = default;
};

/// A convolution as a product: GemmProblem::batch is the number of its groups, channels and filters
/// are those of one group. conv.h makes the whole problem of it.
struct ConvLayout {
  Conv kind = Conv::none;
  int64_t images = 0;
  int64_t channels = 0, filters = 0;
  ConvAxis axes[3] = {};  ///< depth, height, width; those that do not exist have size and filter 1
  Division division = Division::automatic;

  friend bool operator==(const ConvLayout&, const ConvLayout&) = default;
};

/// Outputs along an axis; 0 where the filter is larger than the padded image.
constexpr int64_t outputs(const ConvAxis& axis) {
  const int64_t padded = int64_t(axis.size) + axis.pad_begin + axis.pad_end;
  const int64_t room = padded - ((int64_t(axis.filter) - 1) * axis.dilation + 1);
  return room < 0 || axis.stride < 1 ? 0 : room / axis.stride + 1;
}

// Counts, of numbers that are not negative; 2^63 - 1 stands for all that are larger.

namespace detail {

/// What `count` counts along each axis, multiplied, `times` over.
template <class Count>
constexpr int64_t along_axes(const ConvLayout& conv, int64_t times, const Count& count) {
  for (const ConvAxis& axis : conv.axes) times = saturating_product(times, count(axis));
  return times;
}

}  // namespace detail

/// Pixels of all images, and of all outputs.
constexpr int64_t image_pixels(const ConvLayout& conv) {
  return detail::along_axes(conv, conv.images, [](const ConvAxis& axis) { return axis.size; });
}
constexpr int64_t output_pixels(const ConvLayout& conv) {
  return detail::along_axes(conv, conv.images, outputs);
}

/// Taps of a filter.
constexpr int64_t taps(const ConvLayout& conv) {
  return detail::along_axes(conv, 1, [](const ConvAxis& axis) { return axis.filter; });
}

}  // namespace cleave

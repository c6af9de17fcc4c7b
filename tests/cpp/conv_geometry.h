// Randomly drawn geometry of convolutions, and the definition of a convolution, pair by pair.
#pragma once

#include <array>
#include <string>

#include "cleave/conv.h"
#include "cleave/conv/conv_classes.h"
#include "conv_problems.h"
#include "random.h"

namespace cleave {

/// Strides beyond the filter, padding beyond it, images of one pixel, any padding after the image.
/// The filter may be larger than the image.
inline ConvAxis draw_axis(Random& random, int32_t most_stride) {
  ConvAxis axis;
  axis.size = int32_t(random.number(0, 3) == 0 ? 1 : random.number(1, 14));
  axis.filter = int32_t(random.number(1, 5));
  axis.stride = int32_t(random.number(1, most_stride));
  axis.pad_begin = int32_t(random.number(0, 3) == 0 ? random.number(0, 9) : random.number(0, 2));
  axis.pad_end = int32_t(random.number(0, 3));
  axis.dilation = int32_t(random.number(0, 2) > 0 ? 1 : random.number(1, 6));
  return axis;
}

/// Images and one to three axes.
inline ConvLayout draw_geometry(Random& random) {
  ConvLayout conv{.images = random.number(1, 3)};
  const auto axes = uint32_t(random.number(1, 3));
  for (uint32_t i = kConvAxes - axes; i < kConvAxes; ++i) {
    conv.axes[i] = draw_axis(random, axes == 3 ? 4 : 8);
  }
  return conv;
}

inline std::string text(const ConvLayout& conv) {
  std::string all = std::to_string(conv.images) + " images, channels " + std::to_string(conv.channels) + " -> " +
                    std::to_string(conv.filters);
  for (const ConvAxis& a : conv.axes) {
    all += ",";
    for (const int32_t number : {a.size, a.filter, a.stride, a.pad_begin, a.pad_end, a.dilation}) {
      all += " " + std::to_string(number);
    }
  }
  return all;
}

/// Calls visit(at, number) for every place of a grid.
template <class Visit>
void for_each_place(const std::array<int64_t, kConvAxes>& extent, const Visit& visit) {
  int64_t number = 0;
  for (int64_t d = 0; d < extent[0]; ++d) {
    for (int64_t h = 0; h < extent[1]; ++h) {
      for (int64_t w = 0; w < extent[2]; ++w) {
        visit(std::array<int64_t, kConvAxes>{d, h, w}, number++);
      }
    }
  }
}

/// Calls visit(x, tap, y) for every pixel of y and tap that lands on a pixel of x, with their
/// numbers.
template <class Visit>
void for_each_meeting(const ConvLayout& conv, const Visit& visit) {
  std::array<int64_t, kConvAxes> outputs_along, taps_along;
  for (uint32_t i = 0; i < kConvAxes; ++i) {
    outputs_along[i] = outputs(conv.axes[i]);
    taps_along[i] = conv.axes[i].filter;
  }
  for (int64_t image = 0; image < conv.images; ++image) {
    for_each_place(outputs_along, [&](const auto& output, int64_t y) {
      for_each_place(taps_along, [&](const auto& tap, int64_t number) {
        int64_t x = image;
        for (uint32_t i = 0; i < kConvAxes; ++i) {
          const ConvAxis& a = conv.axes[i];
          const int64_t at = output[i] * a.stride + tap[i] * a.dilation - a.pad_begin;
          if (at < 0 || at >= a.size) return;
          x = x * a.size + at;
        }
        visit(x, number, image * (output_pixels(conv) / conv.images) + y);
      });
    });
  }
}

}  // namespace cleave

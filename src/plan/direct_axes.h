// What direct kernels (kernel/conv_direct.h) of all directions see of a convolution's axes and channels.
#pragma once

#include "cleave/conv.h"
#include "cleave/conv/direct_conv.h"
#include "problem/placement.h"

namespace cleave {

inline constexpr int32_t kMostDirectStride = 4;

inline DirectAxis direct_axis(Conv kind, const ConvAxis& axis) {
  return {.taps = uint32_t(axis.filter),
          .stride = uint32_t(axis.stride),
          .dilation = uint32_t(axis.filter > 1 ? axis.dilation : 1),
          .phase = kind == Conv::dgrad ? uint32_t(axis.pad_begin % axis.stride) : 0};
}

/// Groups of 1, 2, 4 or 8 channels and as many filters, of a line or an image.
inline bool has_narrow_groups(const GemmProblem& p) {
  const int64_t group = p.conv.channels;
  const bool widths = group == p.conv.filters && (group == 1 || group == 2 || group == 4 || group == 8);
  if (!widths || p.batch < 2 || p.conv.axes[0] != ConvAxis{}) return false;
  for (const ConvAxis& axis : p.conv.axes)
    if (axis.stride > kMostDirectStride) return false;
  return p.a.dtype == DType::f16 || p.a.dtype == DType::bf16 || p.a.dtype == DType::f32;
}

/// Groups' channels, and filters, follow each other: `width` of each.
inline bool groups_adjoin(const MatrixLayout& layout, int64_t width) {
  return layout.stride_batch == width;
}

/// Channels of a pixel that can be loaded at once: a power of two. `stride`: to the next pixel.
inline uint32_t aligned_channels(const MatrixLayout& layout, int64_t stride) {
  return common_alignment(layout.alignment | uint64_t(stride) * size_of(layout.dtype)) / size_of(layout.dtype);
}

}  // namespace cleave

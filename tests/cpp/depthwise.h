// Convolutions of narrow groups, for tests of the kernels that serve them.
#pragma once

#include "cleave/conv.h"
#include "conv_choice.h"

namespace cleave {

/// Pixels remain as many without a stride.
inline ConvAxis centred_axis(int32_t size, int32_t taps, int32_t stride = 1) {
  return {.size = size, .filter = taps, .stride = stride, .pad_begin = taps / 2, .pad_end = taps / 2};
}

/// `channels` in all, in groups of as many channels as filters.
inline GemmProblem depthwise(Conv kind, const ConvAxis& height, const ConvAxis& width, int64_t channels = 96,
                             int64_t group = 1, int64_t images = 8, DType type = DType::f16) {
  const ConvLayout conv{
      .kind = kind, .images = images, .channels = group, .filters = group, .axes = {kNone, height, width}};
  return implicit_gemm(conv, channels / group, type, kind == Conv::wgrad ? DType::f32 : type);
}

}  // namespace cleave

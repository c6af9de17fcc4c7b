// Weight gradients of few filters, which networks' last layers have.
#pragma once

#include <cstdint>

#include "conv_choice.h"
#include "conv_geometry.h"

namespace cleave {

inline GemmProblem few_filters(int64_t channels, int64_t filters, const ConvAxis& depth, const ConvAxis& height,
                               const ConvAxis& width, int64_t images = 2) {
  const ConvLayout conv{
      .kind = Conv::wgrad, .images = images, .channels = channels, .filters = filters, .axes = {depth, height, width}};
  GemmProblem p = implicit_gemm(conv, 1, DType::f16, DType::f16);
  p.kernel = KernelFamily::direct;
  return p;
}

inline ConvAxis plain_axis(int32_t size, int32_t filter = 3, int32_t stride = 1) {
  return {.size = size, .filter = filter, .stride = stride, .pad_begin = filter / 2, .pad_end = filter / 2};
}

}  // namespace cleave

// A convolution's problem in the numbers of its kernel, and as the product that the kernel computes.
#pragma once

#include "cleave/problem.h"
#include "launch/conv_grid.h"

namespace cleave {

inline int64_t conv_outputs(const ConvAxis& axis) {
  return conv_outputs(axis.size, int64_t(axis.pad_begin) + axis.pad_end, axis.filter, axis.stride, axis.dilation);
}

/// A convolution that breaks no rule of `validate`, in a kernel's numbers.
inline ConvGeometry conv_geometry(const ConvLayout& conv, int64_t groups) {
  ConvGeometry geometry{.kind = conv.kind,
                        .images = uint32_t(conv.images),
                        .groups = uint32_t(groups),
                        .channels = uint32_t(conv.channels),
                        .filters = uint32_t(conv.filters)};
  for (uint32_t i = 0; i < kConvAxes; ++i) {
    const ConvAxis& axis = conv.axes[i];
    geometry.axes[i] = {.size = axis.size,
                        .outputs = int32_t(conv_outputs(axis)),
                        .filter = axis.filter,
                        .stride = axis.stride,
                        .pad = axis.pad_begin,
                        .dilation = axis.dilation};
  }
  return geometry;
}

/// The problem as the kernel sees it: with the sizes of its product, in which the batch may be taps.
/// `c`: what names a kernel will do. `classes`: those side by side, of a kernel that has them so.
inline GemmProblem conv_view(const GemmProblem& problem, const GemmConfig& c, const ConvGeometry& geometry,
                             const ConvClasses& classes) {
  GemmProblem view = problem;
  const GemmSizes sizes = conv_sizes(c, geometry, classes);
  view.m = sizes.m;
  view.n = sizes.n;
  view.k = sizes.k;
  view.batch = sizes.batch;
  if (c.conv.batches_taps) {
    view.a.stride_batch = view.b.stride_batch = 0;
    view.c.stride_batch = view.d.stride_batch = view.n;
    const auto by_tap = [&](EpilogueLayout& layout) {
      if (layout.shape == InputShape::row) layout.stride_batch = view.n * layout.stride;
      if (layout.shape == InputShape::matrix) layout.stride_batch = view.n;
    };
    if (view.epilogue.function != nullptr) {
      for (EpilogueLayout& input : view.epilogue.inputs) by_tap(input);
      for (EpilogueLayout& output : view.epilogue.outputs) by_tap(output);
    }
  }
  return view;
}

}  // namespace cleave

// A convolution's problem as the product that its kernel computes.
#pragma once

#include "cleave/problem.h"
#include "launch/conv_grid.h"
#include "launch/product.h"

namespace cleave {

/// The problem with the sizes of the kernel's product, in which the batch may be taps, and which may be read the other
/// way. `c`: what names a kernel will do. `classes`: those side by side, of a kernel that has them so.
inline GemmProblem conv_view(const GemmProblem& problem, const GemmConfig& c, const ConvClasses& classes) {
  const ConvLayout& conv = problem.conv;
  GemmProblem view = problem;
  const auto [m, n, k] = product_sizes(conv);
  view.m = m;
  view.n = n;
  view.k = k;
  if (c.conv.fuses_classes) {  // the product of a dgrad that they make together
    const ConvClass& fused = classes.list.front();
    view.m = fused.rows;
    view.n = conv.channels * classes.columns.pixels.residues.size;
    view.k = fused.taps.size * conv.filters;
  }
  if (c.conv.batches_taps) {
    view.n = conv.channels;
    view.batch = taps(conv);
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
  return c.conv.turned ? transposed(view) : view;
}

}  // namespace cleave

#include "problem/conv.h"

#include <algorithm>

#include "cleave/core/math.h"
#include "launch/conv_grid.h"
#include "launch/product.h"

namespace cleave {
namespace {

/// A tensor of pixels, those of a group being `channels` of all groups'.
MatrixLayout pixels_of(DType type, int64_t channels, int64_t groups) {
  return {.dtype = type, .stride_row = saturating_product(groups, channels), .stride_col = 1, .stride_batch = channels};
}

}  // namespace

std::optional<GemmProblem> matrix_product(const GemmProblem& problem) {
  const auto has_one_tap = [](const ConvAxis& axis) {
    return axis.filter == 1 && axis.stride == 1 && axis.pad_begin == 0 && axis.pad_end == 0;
  };
  const ConvLayout& conv = problem.conv;
  if (conv.kind == Conv::none || problem.batch != 1 || !std::ranges::all_of(conv.axes, has_one_tap))
    return std::nullopt;
  GemmProblem product = problem;
  product.conv = {};
  for (MatrixLayout* matrix : {&product.a, &product.b, &product.c, &product.d}) matrix->stride_batch = 0;
  return product;
}

int64_t pixels_read(const ConvLayout& conv) {
  return detail::along_axes(
      conv, conv.images, [](const ConvAxis& axis) { return min_of<int64_t>(axis.size, outputs(axis) * axis.filter); });
}

GemmProblem implicit_gemm(const ConvLayout& conv, int64_t groups, DType operands, DType output) {
  const auto [m, n, k] = product_sizes(conv);
  GemmProblem problem{.m = m, .n = n, .k = k, .batch = groups, .conv = conv};
  const MatrixLayout x = pixels_of(operands, conv.channels, groups);
  const MatrixLayout y = pixels_of(operands, conv.filters, groups);
  const int64_t filter = saturating_product(taps(conv), conv.channels);
  const MatrixLayout w{.dtype = operands,
                       .stride_row = filter,
                       .stride_col = 1,
                       .stride_batch = saturating_product(conv.filters, filter)};
  switch (conv.kind) {
    case Conv::none:
      return problem;
    case Conv::fprop:
      problem.a = x;
      problem.b = detail::transposed(w);
      problem.d = y;
      break;
    case Conv::dgrad:
      problem.a = y;
      problem.b = w;
      problem.d = x;
      break;
    case Conv::wgrad:
      problem.a = detail::transposed(y);
      problem.b = x;
      problem.d = w;
      break;
  }
  problem.c = problem.d;
  problem.c.dtype = output;
  problem.d.dtype = output;
  return problem;
}

}  // namespace cleave

#include "problem/conv.h"

#include <algorithm>
#include <initializer_list>

#include "cleave/core/math.h"
#include "launch/product.h"
#include "problem/saturate.h"

namespace cleave {
namespace {

int64_t product(std::initializer_list<int64_t> factors) {
  int64_t result = 1;
  for (const int64_t factor : factors) result = saturating_product(result, factor);
  return result;
}

/// Pixels or taps: what `count` counts along each axis, and `images` of them.
template <class Count>
int64_t places(const ConvLayout& conv, int64_t images, const Count& count) {
  return product({images, count(conv.axes[0]), count(conv.axes[1]), count(conv.axes[2])});
}

/// A tensor of pixels, those of a group being `channels` of all groups'.
MatrixLayout pixels_of(DType type, int64_t channels, int64_t groups) {
  return {.dtype = type, .stride_row = product({groups, channels}), .stride_col = 1, .stride_batch = channels};
}

}  // namespace

int64_t outputs(const ConvAxis& axis) {
  return conv_outputs(axis);
}

int64_t image_pixels(const ConvLayout& conv) {
  return places(conv, conv.images, [](const ConvAxis& axis) { return axis.size; });
}

int64_t output_pixels(const ConvLayout& conv) {
  return places(conv, conv.images, outputs);
}

int64_t taps(const ConvLayout& conv) {
  return places(conv, 1, [](const ConvAxis& axis) { return axis.filter; });
}

bool gathers_a(const ConvLayout& conv) {
  return conv.kind == Conv::fprop || conv.kind == Conv::dgrad;
}

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
  return places(conv, conv.images,
                [](const ConvAxis& axis) { return min_of<int64_t>(axis.size, outputs(axis) * axis.filter); });
}

ProductSizes product_sizes(const ConvLayout& conv) {
  switch (conv.kind) {
    case Conv::none:
      break;
    case Conv::fprop:
      return {output_pixels(conv), conv.filters, product({taps(conv), conv.channels})};
    case Conv::dgrad:
      return {image_pixels(conv), conv.channels, product({taps(conv), conv.filters})};
    case Conv::wgrad:
      return {conv.filters, product({taps(conv), conv.channels}), output_pixels(conv)};
  }
  return {};
}

GemmProblem implicit_gemm(const ConvLayout& conv, int64_t groups, DType operands, DType output) {
  const auto [m, n, k] = product_sizes(conv);
  GemmProblem problem{.m = m, .n = n, .k = k, .batch = groups, .conv = conv};
  const MatrixLayout x = pixels_of(operands, conv.channels, groups);
  const MatrixLayout y = pixels_of(operands, conv.filters, groups);
  const int64_t filter = product({taps(conv), conv.channels});
  const MatrixLayout w{
      .dtype = operands, .stride_row = filter, .stride_col = 1, .stride_batch = product({conv.filters, filter})};
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

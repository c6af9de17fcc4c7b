#include "problem/conv.h"

#include <algorithm>
#include <type_traits>

#include "cleave/core/math.h"
#include "launch/conv_grid.h"
#include "launch/product.h"
#include "problem/placement.h"

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

GemmProblem one_group(const GemmProblem& problem) {
  GemmProblem one = problem;
  one.batch = 1;
  const auto begin_anywhere = [](auto& layout) {
    const uint32_t offset = common_alignment(uint64_t(layout.stride_batch) * size_of(layout.dtype));
    layout.alignment = min_of<uint32_t>(layout.alignment, offset);
    layout.stride_batch = 0;
  };
  for (MatrixLayout* matrix : {&one.a, &one.b, &one.c, &one.d}) begin_anywhere(*matrix);
  one.bias_stride_batch = 0;
  if (one.epilogue.function != nullptr) {
    for (EpilogueLayout& input : one.epilogue.inputs) begin_anywhere(input);
    for (EpilogueLayout& output : one.epilogue.outputs) begin_anywhere(output);
  }
  return one;
}

GemmArguments group_of(const GemmProblem& p, const GemmArguments& all, int64_t group) {
  GemmArguments own = all;
  const auto move = [&]<class Void>(Void*& data, DType dtype, int64_t stride) {
    using Byte = std::conditional_t<std::is_const_v<Void>, const char, char>;
    if (data != nullptr) data = static_cast<Byte*>(data) + group * stride * int64_t(size_of(dtype));
  };
  move(own.a, p.a.dtype, p.a.stride_batch);
  move(own.b, p.b.dtype, p.b.stride_batch);
  move(own.c, p.c.dtype, p.c.stride_batch);
  move(own.d, p.d.dtype, p.d.stride_batch);
  move(own.bias, p.bias_dtype, p.bias_stride_batch);
  if (p.epilogue.function == nullptr) return own;
  for (uint32_t i = 0; i < kMostEpilogueInputs; ++i) {
    const EpilogueLayout& input = p.epilogue.inputs[i];
    move(own.epilogue_inputs[i].data, input.dtype, input.stride_batch);
  }
  for (uint32_t i = 0; i < kMostEpilogueOutputs; ++i) {
    const EpilogueLayout& output = p.epilogue.outputs[i];
    move(own.epilogue_outputs[i], output.dtype, output.stride_batch);
  }
  return own;
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

#include "problem/placement.h"

#include <limits>

#include "cleave/conv.h"
#include "cleave/core/math.h"
#include "cleave/memory/weight_layout.h"
#include "problem/problem.h"

namespace cleave {
namespace {

/// The scales of an operand of `rows` rows (columns of B). Where a stride is 0, there is only one.
Placement scales_of(const ScaleLayout& scales, int64_t rows, int64_t k, int64_t batch) {
  const MatrixLayout layout{.dtype = DType::f32,
                            .stride_row = scales.stride_row,
                            .stride_col = scales.stride_k,
                            .stride_batch = scales.stride_batch,
                            .alignment = sizeof(float)};
  const auto stored = [](int64_t size, int64_t stride) { return stride == 0 ? min_of<int64_t>(size, 1) : size; };
  switch (scales.kind) {
    case Scaling::none:
      break;
    case Scaling::vector:
      return {layout, stored(rows, scales.stride_row), 1, stored(batch, scales.stride_batch)};
    case Scaling::block:
      // Rules may ask before another one refuses blocks of no rows.
      return {layout, stored(ceil_div<int64_t>(rows, max_of(scales.rows, 1u)), scales.stride_row),
              stored(ceil_div<int64_t>(k, kScaleBlock), scales.stride_k), stored(batch, scales.stride_batch)};
  }
  return {layout, 0, 0, 0};
}

/// What an epilogue function reads or writes for each element of D.
Placement place_like_d(const GemmProblem& p, const EpilogueLayout& x) {
  const bool by_row = x.order == Order::row;
  MatrixLayout layout{.dtype = x.dtype, .stride_batch = x.stride_batch, .alignment = x.alignment};
  const int64_t batch = x.shape == InputShape::matrix ? entries_of_d(p) : x.stride_batch == 0 ? 1 : p.batch;
  switch (x.shape) {
    case InputShape::scalar:
      break;
    case InputShape::row:
      layout.stride_col = x.stride;
      return {layout, 1, p.n, batch};
    case InputShape::column:
      layout.stride_row = x.stride;
      return {layout, p.m, 1, batch};
    case InputShape::matrix:
      layout.stride_row = by_row ? x.stride : 1;
      layout.stride_col = by_row ? 1 : x.stride;
      return {layout, p.m, p.n, batch};
  }
  return {layout, 1, 1, batch};
}

/// A packed weight as a line of bytes for each of a batch.
Placement packed(const MatrixLayout& layout, int64_t rows, int64_t k, int64_t batch) {
  const auto bytes = int64_t(weight_bytes(uint64_t(rows), uint64_t(k)));
  const MatrixLayout line{
      .dtype = DType::i8, .stride_row = bytes, .stride_batch = layout.stride_batch / 2, .alignment = layout.alignment};
  return {line, 1, bytes, batch};
}

/// What a packed weight has for each group of K and each row, elements of `type`.
Placement by_group(const GemmProblem& p, DType type, bool given) {
  const bool is_a = p.weights_a.format != WeightFormat::none;
  const WeightLayout& weights = is_a ? p.weights_a : p.weights_b;
  const MatrixLayout layout{.dtype = type,
                            .stride_row = weights.scale_stride_k,
                            .stride_batch = weights.scale_stride_batch,
                            .alignment = size_of(type)};
  if (!given || weights.format == WeightFormat::none) return {layout, 0, 0, 0};
  const int64_t entries = is_a ? entries_of_a(p) : entries_of_b(p);
  return {layout, ceil_div<int64_t>(p.k, max_of<int64_t>(weights.group, 1)), is_a ? rows_of_a(p) : columns_of_b(p),
          weights.scale_stride_batch == 0 ? min_of<int64_t>(entries, 1) : entries};
}

}  // namespace

uint32_t widest_access(const Placement& matrix) {
  const uint64_t size = size_of(matrix.layout.dtype);
  const uint64_t stride = matrix.rows > 1 ? uint64_t(matrix.layout.stride_row) * size : 0;
  return common_alignment(stride | uint64_t(matrix.columns) * size | matrix.layout.alignment);
}

bool addressable(const Placement& matrix) {
  __extension__ using Wide = __int128;
  const auto reach = [](int64_t size, int64_t stride) { return size > 1 ? Wide(size - 1) * stride : Wide(0); };
  const Wide elements = 1 + reach(matrix.rows, matrix.layout.stride_row) +
                        reach(matrix.columns, matrix.layout.stride_col) +
                        reach(matrix.batch, matrix.layout.stride_batch);
  return elements * size_of(matrix.layout.dtype) <= std::numeric_limits<int64_t>::max();
}

Placement a_of(const GemmProblem& p) {
  if (p.conv.kind == Conv::fprop) return {p.a, image_pixels(p.conv), p.conv.channels, p.batch};
  if (p.conv.kind == Conv::dgrad) return {p.a, output_pixels(p.conv), p.conv.filters, p.batch};
  if (p.weights_a.format != WeightFormat::none) return packed(p.a, rows_of_a(p), p.k, entries_of_a(p));
  return {p.a, rows_of_a(p), p.k, entries_of_a(p)};
}
Placement b_of(const GemmProblem& p) {
  if (p.conv.kind == Conv::fprop) return {p.b, taps(p.conv) * p.conv.channels, p.conv.filters, p.batch};
  if (p.conv.kind == Conv::dgrad) return {p.b, p.conv.filters, taps(p.conv) * p.conv.channels, p.batch};
  if (p.conv.kind == Conv::wgrad) return {p.b, image_pixels(p.conv), p.conv.channels, p.batch};
  if (p.weights_b.format != WeightFormat::none) return packed(p.b, columns_of_b(p), p.k, entries_of_b(p));
  return {p.b, p.k, stored_columns_of_b(p), entries_of_b(p)};
}
Placement c_of(const GemmProblem& p) {
  return {p.c, p.m, p.n, p.has_c ? entries_of_d(p) : 0};
}
Placement d_of(const GemmProblem& p) {
  return {p.d, p.m, p.n, entries_of_d(p)};
}
Placement bias_of(const GemmProblem& p) {
  const int64_t count = p.bias == Bias::row      ? columns_of_b(p)
                        : p.bias == Bias::column ? (gates_rows(p) ? 2 * p.m : p.m)
                                                 : 0;
  Placement place = vector_of(p.bias_dtype, count);
  place.layout.stride_batch = p.bias_stride_batch;
  if (p.bias_stride_batch != 0) place.batch = p.batch;
  return place;
}
Placement scale_a_of(const GemmProblem& p) {
  const bool counted = p.groups.dimension == Grouping::m && p.groups.bounds == GroupBounds::counts;
  if (counted && p.scale_a.stride_batch != 0) {
    ScaleLayout of_group = p.scale_a;
    of_group.stride_batch += p.groups.spacing * of_group.stride_row;
    return scales_of(of_group, p.groups.spacing, p.k, p.batch);
  }
  return scales_of(p.scale_a, rows_of_a(p), p.k, entries_of_scale_a(p, p.scale_a.kind));
}
Placement scale_b_of(const GemmProblem& p) {
  return scales_of(p.scale_b, stored_columns_of_b(p), p.k, entries_of_scale_b(p, p.scale_b.kind));
}
Placement weight_scale_of(const GemmProblem& p) {
  const WeightFormat format = p.weights_a.format != WeightFormat::none ? p.weights_a.format : p.weights_b.format;
  return by_group(p, weight_scale_type(format, p.a.dtype), true);
}
Placement weight_zero_of(const GemmProblem& p) {
  return by_group(p, DType::i8, p.weights_a.has_zero || p.weights_b.has_zero);
}
Placement zero_a_of(const GemmProblem& p) {
  return vector_of(DType::i32, p.has_zero ? p.m : 0);
}
Placement zero_b_of(const GemmProblem& p) {
  return vector_of(DType::i32, p.has_zero ? p.n : 0);
}
Placement scale_d_of(const GemmProblem& p) {
  return vector_of(DType::f32, p.has_scale_d ? 1 : 0);
}
Placement amax_of(const GemmProblem& p) {
  return vector_of(DType::f32, p.has_amax ? 1 : 0);
}
Placement scale_out_of(const GemmProblem& p) {
  Placement place = scales_of(p.scale_out, p.m, p.n, entries_of_d(p));
  if (p.scale_out.kind == Scaling::none) return place;
  // What is written shares nothing: a stride of 0 is no single value there.
  place.rows = p.m;
  place.columns = ceil_div<int64_t>(p.n, kScaleBlock);
  place.batch = entries_of_d(p);
  return place;
}
Placement epilogue_input_of(const GemmProblem& p, uint32_t input) {
  return place_like_d(p, p.epilogue.inputs[input]);
}
Placement epilogue_output_of(const GemmProblem& p, uint32_t output) {
  return place_like_d(p, p.epilogue.outputs[output]);
}
Placement group_offsets_of(const GemmProblem& p) {
  const bool given = p.groups.dimension != Grouping::none && p.groups.bounds != GroupBounds::counts;
  return integers_of(given ? p.batch + (p.groups.bounds == GroupBounds::indptr ? 1 : 0) : 0, p.groups.wide);
}
Placement gather_of(const GemmProblem& p) {
  return integers_of(p.gather.given ? grouped_extent(p) : 0, false);
}
Placement group_sizes_of(const GemmProblem& p) {
  const bool given = p.groups.bounds == GroupBounds::starts || p.groups.bounds == GroupBounds::counts;
  return integers_of(p.groups.dimension != Grouping::none && given ? p.batch : 0, p.groups.wide);
}

}  // namespace cleave

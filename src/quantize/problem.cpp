#include "quantize/problem.h"

#include "cleave/core/math.h"
#include "problem/row_operands.h"
#include "problem/saturate.h"

namespace cleave {
int64_t padded_extent(int64_t extent, int64_t groups) {
  constexpr int64_t kBlock = kScaleBlock;
  const int64_t padding = saturating_product(kBlock - 1, min_of(extent, groups));
  return saturating_sum(extent, padding) / kBlock * kBlock;
}

int64_t extent_t(const QuantizeProblem& p) {
  return p.groups == 0 ? p.rows : padded_extent(p.rows, p.groups);
}

MatrixShape scale_shape(Granularity granularity, int64_t rows, int64_t cols) {
  constexpr int64_t kBlock = kScaleBlock;
  switch (granularity) {
    case Granularity::tensor:
      return {1, 1};
    case Granularity::row:
      return {rows, 1};
    case Granularity::block_1x128:
      return {rows, ceil_div(cols, kBlock)};
    case Granularity::block_128x128:
      break;
  }
  return {ceil_div(rows, kBlock), ceil_div(cols, kBlock)};
}

Placement x_of(const QuantizeProblem& p) {
  return {p.x, p.rows, p.cols, 1};
}
Placement q_of(const QuantizeProblem& p) {
  return {p.q, p.rows, p.cols, 1};
}
Placement scale_of(const QuantizeProblem& p) {
  const MatrixShape shape = scale_shape(p.granularity, p.rows, p.cols);
  return {p.scale, shape.rows, shape.cols, 1};
}
Placement zero_of(const QuantizeProblem& p) {
  const int64_t count = p.granularity == Granularity::tensor ? 1 : p.rows;
  return integers_of(p.symmetric ? 0 : count, false);
}
Placement smooth_of(const QuantizeProblem& p) {
  return vector_of(DType::f32, p.has_smooth ? p.cols : 0, p.smooth_alignment);
}
Placement q_t_of(const QuantizeProblem& p) {
  return {p.q_t, p.cols, extent_t(p), p.has_transpose ? 1 : 0};
}
Placement scale_t_of(const QuantizeProblem& p) {
  const MatrixShape shape = scale_shape(p.granularity, p.cols, extent_t(p));
  return {p.scale_t, shape.rows, shape.cols, p.has_transpose ? 1 : 0};
}
Placement offsets_of(const QuantizeProblem& p) {
  return integers_of(p.groups, p.wide_offsets);
}
Placement padded_ends_of(const QuantizeProblem& p) {
  return integers_of(p.groups, false);
}

}  // namespace cleave

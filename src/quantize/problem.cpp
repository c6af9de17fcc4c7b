#include "quantize/problem.h"

#include "cleave/core/math.h"

namespace cleave {
namespace {

Placement vector_of(DType type, uint32_t alignment, int64_t count) {
  return {{.dtype = type, .stride_row = count, .alignment = alignment}, 1, count, 1};
}

}  // namespace

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
  return vector_of(DType::i32, sizeof(int32_t), p.symmetric ? 0 : count);
}
Placement smooth_of(const QuantizeProblem& p) {
  return vector_of(DType::f32, p.smooth_alignment, p.has_smooth ? p.cols : 0);
}
Placement q_t_of(const QuantizeProblem& p) {
  return {p.q_t, p.cols, p.rows, p.has_transpose ? 1 : 0};
}
Placement scale_t_of(const QuantizeProblem& p) {
  const MatrixShape shape = scale_shape(p.granularity, p.cols, p.rows);
  return {p.scale_t, shape.rows, shape.cols, p.has_transpose ? 1 : 0};
}

}  // namespace cleave

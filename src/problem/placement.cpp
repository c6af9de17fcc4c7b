#include "problem/placement.h"

#include <limits>

#include "cleave/core/math.h"

namespace cleave {
namespace {

Placement vector_of(DType type, int64_t count) {
  return {{.dtype = type, .stride_row = count, .alignment = size_of(type)}, 1, count, 1};
}

/// The scales of an operand of `rows` rows (columns of B). Where a stride is 0, there is only one.
Placement scales_of(const ScaleLayout& scales, int64_t rows, int64_t k, int64_t batch) {
  const MatrixLayout layout{.dtype = DType::f32,
                            .stride_row = scales.stride_row,
                            .stride_col = scales.stride_k,
                            .stride_batch = scales.stride_batch,
                            .alignment = sizeof(float)};
  const auto stored = [](int64_t size, int64_t stride) {
    return stride == 0 ? min_of<int64_t>(size, 1) : size;
  };
  switch (scales.kind) {
    case Scaling::none:
      break;
    case Scaling::vector:
      return {layout, stored(rows, scales.stride_row), 1, stored(batch, scales.stride_batch)};
    case Scaling::block:
      return {layout, stored(ceil_div<int64_t>(rows, scales.rows), scales.stride_row),
              stored(ceil_div<int64_t>(k, kScaleBlock), scales.stride_k),
              stored(batch, scales.stride_batch)};
  }
  return {layout, 0, 0, 0};
}

}  // namespace

bool addressable(const Placement& matrix) {
  __extension__ using Wide = __int128;
  const auto reach = [](int64_t size, int64_t stride) {
    return size > 1 ? Wide(size - 1) * stride : Wide(0);
  };
  const Wide elements = 1 + reach(matrix.rows, matrix.layout.stride_row) +
                        reach(matrix.columns, matrix.layout.stride_col) +
                        reach(matrix.batch, matrix.layout.stride_batch);
  return elements * size_of(matrix.layout.dtype) <= std::numeric_limits<int64_t>::max();
}

Placement a_of(const GemmProblem& p) {
  return {p.a, p.m, p.k, p.batch};
}
Placement b_of(const GemmProblem& p) {
  return {p.b, p.k, p.n, p.batch};
}
Placement c_of(const GemmProblem& p) {
  return {p.c, p.m, p.n, p.has_c ? p.batch : 0};
}
Placement d_of(const GemmProblem& p) {
  return {p.d, p.m, p.n, p.batch};
}
Placement bias_of(const GemmProblem& p) {
  const int64_t count = p.bias == Bias::row ? p.n : p.bias == Bias::column ? p.m : 0;
  return vector_of(p.bias_dtype, count);
}
Placement scale_a_of(const GemmProblem& p) {
  return scales_of(p.scale_a, p.m, p.k, p.batch);
}
Placement scale_b_of(const GemmProblem& p) {
  return scales_of(p.scale_b, p.n, p.k, p.batch);
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

}  // namespace cleave

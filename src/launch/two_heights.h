// A product of a packed weight in two launches, which have the weight's rows, D's columns, between them: whole waves of
// tall tiles, and tiles of another height for what is left.
#pragma once

#include "cleave/memory/weight_layout.h"
#include "cleave/problem.h"
#include "launch/product.h"

namespace cleave {

/// With more waves, the last one's share is small.
inline constexpr int64_t kMostWaves = 6;

/// So many of the weight's rows make whole waves of tiles of `height` of them by `tokens`; 0 where nothing is left
/// beside those, or no wave is whole.
inline int64_t rows_of_whole_waves(const GemmProblem& p, uint32_t height, uint32_t tokens, uint32_t num_sms) {
  const int64_t columns = ceil_div<int64_t>(p.m, tokens), tiles = ceil_div<int64_t>(p.n, height) * columns;
  const int64_t waves = columns == 0 ? 0 : tiles / num_sms;
  if (waves == 0 || waves > kMostWaves) return 0;
  const int64_t rows = waves * num_sms / columns * height;
  return rows < p.n ? rows : 0;
}

/// The problem with `rows` of the weight's rows.
inline GemmProblem part_of(const GemmProblem& whole, int64_t rows) {
  GemmProblem part = whole;
  part.n = rows;
  return part;
}

/// The arguments of the part that begins with row `rows` of the weight, a multiple of a block's.
inline GemmArguments arguments_behind(const GemmProblem& whole, int64_t rows, const GemmArguments& all) {
  const auto behind = [](auto* data, int64_t bytes) {
    return data == nullptr ? data : reinterpret_cast<decltype(data)>(reinterpret_cast<uintptr_t>(data) + bytes);
  };
  const auto columns = [&](const MatrixLayout& matrix) {
    return rows * matrix.stride_col * int64_t(size_of(matrix.dtype));
  };
  GemmArguments own = all;
  own.b = behind(all.b, int64_t(weight_bytes(uint64_t(rows), uint64_t(whole.k))));
  own.c = behind(all.c, columns(whole.c));
  own.d = behind(all.d, columns(whole.d));
  if (whole.bias == Bias::row) own.bias = behind(all.bias, rows * int64_t(size_of(whole.bias_dtype)));
  own.scale_b = behind(all.scale_b, rows * whole.scale_b.stride_row * int64_t(sizeof(float)));
  const DType scale = weight_scale_type(whole.weights_b.format, whole.a.dtype);
  own.weight_scale = behind(all.weight_scale, rows * int64_t(size_of(scale)));
  own.weight_zero = behind(all.weight_zero, rows);
  return own;
}

}  // namespace cleave

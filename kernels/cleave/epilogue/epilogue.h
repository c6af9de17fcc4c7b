// What is done to a finished sum, element by element:
//
//   value = alpha * scale_a * scale_b * (sum - zero_a * zero_b) + beta * C + bias
//   D     = function(value) * (1 / scale_d)
//
// (scales of blocks are applied to the sums as they grow: mainloop/promotion.h). If D is int32, all of it is integers,
// modulo 2^32. The sum of an empty K is 0 whatever alpha, scales and zero points are. One definition for the kernels
// and the CPU backend. It runs once per element of D, on the sum of all slices, whatever the split-K mode.
#pragma once

#include "cleave/config/epilogue_params.h"
#include "cleave/core/element.h"
#include "cleave/tile/tile.h"

namespace cleave {

CLEAVE_HD int64_t epilogue_offset(Order order, int64_t stride, uint32_t row, uint32_t col) {
  return order == Order::row ? int64_t(row) * stride + col : int64_t(col) * stride + row;
}

/// What a row or a column of D contributes to each of its values: its operand's scale and zero point, and its bias.
struct BroadcastValues : OutputOffset {
  float scale = 1.0f;
  float bias = 0.0f;
  int32_t zero = 1;
};

/// `scaled_row`: which of the operand's rows it is, where a list names those (list_params.h).
CLEAVE_HD BroadcastValues row_broadcast(EpilogueConfig config, const EpilogueParams& p, const ScaleParams& scales,
                                        uint32_t row, uint32_t batch, uint32_t scaled_row) {
  BroadcastValues values;
  if (config.scaling == Scaling::vector && config.scaled_rows)
    values.scale = scales.data[int64_t(batch) * scales.stride_batch + scaled_row * scales.stride_row];
  if (config.bias == Bias::column)
    values.bias = load_element(config.bias_dtype, p.bias, batch * p.bias_batch_stride + row);
  if (config.has_zero && p.zero_a != nullptr) values.zero = p.zero_a[row];
  return values;
}

CLEAVE_HD BroadcastValues column_broadcast(EpilogueConfig config, const EpilogueParams& p, const ScaleParams& scales,
                                           uint32_t col, uint32_t batch, uint32_t scaled_column) {
  BroadcastValues values;
  if (config.scaling == Scaling::vector && config.scaled_columns)
    values.scale = scales.data[int64_t(batch) * scales.stride_batch + scaled_column * scales.stride_row];
  if (config.bias == Bias::row)
    values.bias = load_element(config.bias_dtype, p.bias, batch * p.bias_batch_stride + col);
  if (config.has_zero && p.zero_b != nullptr) values.zero = p.zero_b[col];
  return values;
}

/// An element of D.
struct ElementCoord {
  uint32_t row, col, batch;
};

CLEAVE_HD int64_t c_offset(EpilogueConfig config, const EpilogueParams& p, const ElementCoord& at) {
  return int64_t(at.batch) * p.c_batch_stride + epilogue_offset(config.order, p.c_stride, at.row, at.col);
}

/// C's element, as the host and the direct kernel read it (other kernels: epilogue/element_inputs.h). C is not read if
/// beta is 0, so it may hold NaNs.
CLEAVE_HD float c_element(EpilogueConfig config, const EpilogueParams& p, const ElementCoord& at) {
  return config.has_c && p.beta != 0.0f ? load_element(config.c, p.c, c_offset(config, p, at)) : 0.0f;
}
CLEAVE_HD int32_t c_integer(EpilogueConfig config, const EpilogueParams& p, const ElementCoord& at) {
  return config.has_c && p.beta != 0.0f ? static_cast<const int32_t*>(p.c)[c_offset(config, p, at)] : 0;
}

/// An integer sum without the operands' zero points. It wraps, as the sum does.
CLEAVE_HD int32_t without_zeros(EpilogueConfig config, int32_t sum, const BroadcastValues& row_values,
                                const BroadcastValues& col_values) {
  if (!config.has_zero) return sum;
  return int32_t(uint32_t(sum) - uint32_t(row_values.zero) * uint32_t(col_values.zero));
}

/// The value of an `i32` D, which wraps. alpha and beta are whole numbers, and alpha is 1 without a C. `empty`: K is
/// empty; `c`: C's element.
CLEAVE_HD int32_t epilogue_integer(EpilogueConfig config, const EpilogueParams& p, int32_t sum,
                                   const BroadcastValues& row_values, const BroadcastValues& col_values, bool empty,
                                   int32_t c) {
  uint32_t value = empty ? 0 : uint32_t(without_zeros(config, sum, row_values, col_values));
  if (config.has_c) value = value * uint32_t(int32_t(p.alpha)) + uint32_t(int32_t(p.beta)) * uint32_t(c);
  return int32_t(value);
}

/// The value of any other D in float32, before the epilogue's function. `Sum`: float, or int32_t for i8 operands;
/// `empty`, `c`: as above.
template <class Sum>
CLEAVE_HD float epilogue_value(EpilogueConfig config, const EpilogueParams& p, Sum sum,
                               const BroadcastValues& row_values, const BroadcastValues& col_values, bool empty,
                               float c) {
  if (config.has_zero) sum = Sum(without_zeros(config, int32_t(sum), row_values, col_values));
  float value = p.alpha * float(sum);
  if (config.scaling == Scaling::vector) value *= row_values.scale * col_values.scale;
  if (empty) value = 0.0f;
  if (config.has_c && p.beta != 0.0f) value += p.beta * c;
  if (config.bias == Bias::row) value += col_values.bias;
  if (config.bias == Bias::column) value += row_values.bias;
  return value;
}

/// The factor that a value is multiplied by before it is stored.
CLEAVE_HD float stored_factor(EpilogueConfig config, const EpilogueParams& p) {
  return config.has_scale_d ? 1.0f / *p.scale_d : 1.0f;
}

}  // namespace cleave

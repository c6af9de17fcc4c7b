// What is done to a finished sum, element by element: D = activation(alpha * sum + beta * C +
// bias).
//
// One definition for the kernels and the CPU backend. It runs once per element of D, on the sum of
// all slices, whatever the split-K mode.
#pragma once

#include "cleave/core/element.h"
#include "cleave/epilogue/activation.h"

namespace cleave {

/// Run-time values. Strides count elements; D and C have one unit stride each, given by
/// GemmConfig::d_order.
struct EpilogueParams {
  float alpha = 1.0f;
  float beta = 0.0f;
  void* d = nullptr;
  const void* c = nullptr;
  const void* bias = nullptr;
  int64_t d_stride = 0, d_batch_stride = 0;  // d_stride: of the dimension that is not contiguous
  int64_t c_stride = 0, c_batch_stride = 0;
  uint32_t m = 0, n = 0;
};

/// The types and choices that the epilogue is specialised for.
struct EpilogueKind {
  DType c, d, bias_dtype;
  Order order;
  Activation activation;
  Bias bias;
  bool has_c;
};

CLEAVE_HD int64_t epilogue_offset(Order order, int64_t stride, uint32_t row, uint32_t col) {
  return order == Order::row ? int64_t(row) * stride + col : int64_t(col) * stride + row;
}

/// The value of D at (row, col) of batch entry `batch`, in float32. beta == 0 never reads C, so C
/// may hold NaNs.
CLEAVE_HD float epilogue_value(const EpilogueKind kind, const EpilogueParams& p, float sum,
                               uint32_t row, uint32_t col, uint32_t batch) {
  float value = p.alpha * sum;
  if (kind.has_c && p.beta != 0.0f) {
    const int64_t at =
        int64_t(batch) * p.c_batch_stride + epilogue_offset(kind.order, p.c_stride, row, col);
    value += p.beta * load_element(kind.c, p.c, at);
  }
  if (kind.bias != Bias::none) {
    value += load_element(kind.bias_dtype, p.bias, kind.bias == Bias::row ? col : row);
  }
  return activate(kind.activation, value);
}

}  // namespace cleave

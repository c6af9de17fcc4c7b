// What the epilogue (epilogue/epilogue.h) is given: values of a launch, and what it is specialised for.
#pragma once

#include "cleave/core/enums.h"

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
  int64_t bias_batch_stride = 0;
  // Scaling::vector: by row of A and column of B; a stride of 0 has one for all.
  const float* scale_a = nullptr;
  const float* scale_b = nullptr;
  int64_t scale_a_stride = 0, scale_a_batch_stride = 0;
  int64_t scale_b_stride = 0, scale_b_batch_stride = 0;
  const int32_t* zero_a = nullptr;  // nullptr: ones; so for zero_b
  const int32_t* zero_b = nullptr;
  const float* scale_d = nullptr;
  float* amax = nullptr;
};

/// The types and choices that the epilogue is specialised for.
struct EpilogueKind {
  DType c, d, bias_dtype;
  Order order;
  Activation activation;
  Bias bias;
  bool has_c;
  bool scaled;  // Scaling::vector
  bool has_zero, has_scale_d;
};

}  // namespace cleave

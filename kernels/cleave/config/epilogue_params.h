// What the epilogue (epilogue/epilogue.h) is specialised for, and the values of a launch.
#pragma once

#include "cleave/core/enums.h"

namespace cleave {

/// What the epilogue is specialised for.
struct EpilogueConfig {
  DType c = DType::bf16, d = DType::bf16, bias_dtype = DType::bf16;
  Order order = Order::row;  // of C and D
  Activation activation = Activation::none;
  Bias bias = Bias::none;
  bool has_c = false;
  Scaling scaling = Scaling::none;  // of vectors: here; of blocks: in the mainloop
  bool has_zero = false, has_scale_d = false, has_amax = false;

  CLEAVE_HD friend constexpr bool operator==(const EpilogueConfig&, const EpilogueConfig&) = default;
};

/// Run-time values. Strides count elements; D and C have one unit stride each, given by
/// EpilogueConfig::order.
struct EpilogueParams {
  float alpha = 1.0f;
  float beta = 0.0f;
  void* d = nullptr;
  const void* c = nullptr;
  const void* bias = nullptr;
  int64_t d_stride = 0, d_batch_stride = 0;  // d_stride: of the dimension that is not contiguous
  int64_t c_stride = 0, c_batch_stride = 0;
  int64_t bias_batch_stride = 0;
  const int32_t* zero_a = nullptr;  // nullptr: ones; so for zero_b
  const int32_t* zero_b = nullptr;
  const float* scale_d = nullptr;
  float* amax = nullptr;
};

}  // namespace cleave

// What gemm, scaled_gemm, grouped_gemm and the convolutions share.
#pragma once

#include "operands/gemm_operands.h"
#include "tensor.h"

namespace cleave::torch_ops {

struct ProductOptions {
  double alpha = 1.0;
  std::optional<double> beta;
  Activation activation = Activation::none;
  std::optional<ScalarType> out_dtype;
  SplitKMode split_k_mode = SplitKMode::automatic;
  std::optional<int64_t> split_k_slices;
  bool use_fast_accum = false;
  bool grouped = false;
  std::optional<int64_t> alignment;
  std::optional<bool> zero_rest;
};

/// All but what `make_call` has taken in.
void set_options(const ProductOptions& options, ProductCall& call);

/// On the current stream.
void run(const ProductCall& call);

/// Plans (or finds the plan that did the same before) and enqueues on the current stream. Returns
/// D, which is new.
Tensor multiply(const GemmTensors& tensors, const ProductOptions& options);

/// The same, into the tensors' `out`.
void multiply_out(const GemmTensors& tensors, const ProductOptions& options);

}  // namespace cleave::torch_ops

#include "product.h"

#include "precision.h"

namespace cleave::torch_ops {
namespace {

GemmCall describe(const GemmTensors& tensors, const ProductOptions& options) {
  GemmCall call = make_call(tensors, {.d_type = dtype_of(options.out_dtype, "out_dtype"),
                                      .activation = options.activation,
                                      .grouped = options.grouped,
                                      .alignment = options.alignment,
                                      .zero_rest = options.zero_rest});
  set_options(options, call);
  return call;
}

}  // namespace

void set_options(const ProductOptions& options, ProductCall& call) {
  std::optional<float> beta;
  if (options.beta) beta = float32_of(*options.beta, "beta");
  set_scalars(float32_of(options.alpha, "alpha"), beta, call);
  call.problem.split_k_mode = options.split_k_mode;
  call.problem.split_k_slices = slice_count(options.split_k_slices);
  call.problem.fast_accumulation = options.use_fast_accum;
  if (call.problem.a.dtype == DType::f32) {
    call.problem.precision = current_precision(call.problem.conv.kind != Conv::none);
  }
}

/// With the library's pooled workspaces: they belong to one stream, or to one stream of one
/// capture, and their counters stay zero from launch to launch. Memory from torch's allocator would
/// have to be zeroed by a kernel of its own each time.
void run(const ProductCall& call) {
  const int device = call.problem.device;
  plan(call.problem)->run(call.arguments, current_stream(device));
}

Tensor multiply(const GemmTensors& tensors, const ProductOptions& options) {
  GemmCall call = describe(tensors, options);
  const GemmProblem& p = call.problem;
  const auto shape = call.d_shape();
  Tensor d = empty(std::span(shape).subspan(call.batched ? 0 : 1), p.d.dtype, p.device);
  call.arguments.d = d.data_ptr();
  run(call);
  return d;
}

void multiply_out(const GemmTensors& tensors, const ProductOptions& options) {
  run(describe(tensors, options));
}

}  // namespace cleave::torch_ops

#include "operands/quantize_operands.h"

#include "ops.h"

namespace cleave::torch_ops {
namespace {

void run(const QuantizeCall& call) {
  plan(call.problem)->run(call.arguments, current_stream(call.problem.device));
}

struct Quantized {
  Tensor q;
  MaybeTensor scale, zero;  // unless they were given; zero unless q is symmetric
};

/// Makes what is to be returned, and runs.
Quantized run_new(const QuantizeTensors& tensors, const QuantizeOptions& options) {
  QuantizeCall call = make_call(tensors, options);
  const QuantizeProblem& p = call.problem;
  const int64_t shape[] = {p.rows, p.cols};
  Quantized made{.q = empty(shape, p.q.dtype, p.device)};
  call.arguments.q = made.q.data_ptr();
  if (!p.given_scale) {
    const auto [rows, cols] = scale_shape(p.granularity, p.rows, p.cols);
    const int64_t scale_shape[] = {rows, cols};
    made.scale = empty(scale_shape, DType::f32, p.device, options.scale_major == Major::mn);
    call.arguments.scale = static_cast<float*>(made.scale->data_ptr());
    if (!p.symmetric) {
      made.zero = empty(scale_shape, DType::i32, p.device);
      call.arguments.zero = static_cast<int32_t*>(made.zero->data_ptr());
    }
  }
  run(call);
  return made;
}

}  // namespace

std::tuple<Tensor, Tensor> quantize(const Tensor& x, ScalarType dtype,
                                    Name<Granularity> granularity, const MaybeTensor& smooth,
                                    Name<Major> scale_major) {
  const QuantizeOptions options{
      .granularity = granularity, .scale_major = scale_major, .dtype = dtype_of(dtype, "dtype")};
  const Quantized made = run_new({.x = read(x), .smooth = read(smooth)}, options);
  return {made.q, *made.scale};
}

void quantize_out(const Tensor& x, Name<Granularity> granularity, const MaybeTensor& smooth,
                  const Tensor& out, const Tensor& scale_out) {
  const QuantizeOptions options{.granularity = granularity};
  run(make_call({.x = read(x), .q = read(out), .scale = read(scale_out), .smooth = read(smooth)},
                options));
}

std::tuple<Tensor, Tensor, Tensor> quantize_asymmetric(const Tensor& x,
                                                       Name<Granularity> granularity,
                                                       const MaybeTensor& smooth) {
  const QuantizeOptions options{.granularity = granularity, .dtype = DType::i8, .symmetric = false};
  const Quantized made = run_new({.x = read(x), .smooth = read(smooth)}, options);
  return {made.q, *made.scale, *made.zero};
}

void quantize_asymmetric_out(const Tensor& x, Name<Granularity> granularity,
                             const MaybeTensor& smooth, const Tensor& out, const Tensor& scale_out,
                             const Tensor& zero_out) {
  const QuantizeOptions options{.granularity = granularity, .symmetric = false};
  run(make_call({.x = read(x),
                 .q = read(out),
                 .scale = read(scale_out),
                 .zero = read(zero_out),
                 .smooth = read(smooth)},
                options));
}

Tensor quantize_static(const Tensor& x, const Tensor& scale, ScalarType dtype,
                       Name<Granularity> granularity, const MaybeTensor& smooth,
                       const MaybeTensor& zero) {
  const QuantizeOptions options{.granularity = granularity,
                                .dtype = dtype_of(dtype, "dtype"),
                                .given_scale = true,
                                .symmetric = !zero};
  return run_new({.x = read(x), .scale = read(scale), .zero = read(zero), .smooth = read(smooth)},
                 options)
      .q;
}

void quantize_static_out(const Tensor& x, const Tensor& scale, Name<Granularity> granularity,
                         const MaybeTensor& smooth, const MaybeTensor& zero, const Tensor& out) {
  const QuantizeOptions options{
      .granularity = granularity, .given_scale = true, .symmetric = !zero};
  run(make_call({.x = read(x),
                 .q = read(out),
                 .scale = read(scale),
                 .zero = read(zero),
                 .smooth = read(smooth)},
                options));
}

}  // namespace cleave::torch_ops

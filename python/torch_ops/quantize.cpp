#include "operands/quantize_operands.h"

#include "autograd.h"
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
  run(make_call({.x = read_untracked(x, "x"),
                 .q = read_untracked(out, "out"),
                 .scale = read_untracked(scale_out, "scale_out"),
                 .smooth = read_untracked(smooth, "smooth")},
                options));
  mark_written(out);
  mark_written(scale_out);
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
  run(make_call({.x = read_untracked(x, "x"),
                 .q = read_untracked(out, "out"),
                 .scale = read_untracked(scale_out, "scale_out"),
                 .zero = read_untracked(zero_out, "zero_out"),
                 .smooth = read_untracked(smooth, "smooth")},
                options));
  mark_written(out);
  mark_written(scale_out);
  mark_written(zero_out);
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
  run(make_call({.x = read_untracked(x, "x"),
                 .q = read_untracked(out, "out"),
                 .scale = read_untracked(scale, "scale"),
                 .zero = read_untracked(zero, "zero"),
                 .smooth = read_untracked(smooth, "smooth")},
                options));
  mark_written(out);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> quantize_grouped(const Tensor& x,
                                                                    const Tensor& offs,
                                                                    ScalarType dtype,
                                                                    Name<Major> scale_major) {
  const QuantizeOptions options{.granularity = Granularity::block_1x128,
                                .scale_major = scale_major,
                                .dtype = dtype_of(dtype, "dtype"),
                                .transpose = true};
  QuantizeCall call = make_call({.x = read(x), .offs = read(offs)}, options);
  const QuantizeProblem& p = call.problem;
  const auto make = [&](MatrixShape of, DType type, bool by_column, auto*& data) {
    const int64_t shape[] = {of.rows, of.cols};
    Tensor made = empty(shape, type, p.device, by_column);
    data = static_cast<std::remove_reference_t<decltype(data)>>(made.data_ptr());
    return made;
  };
  const MatrixShape shape{p.rows, p.cols}, shape_t{p.cols, extent_t(p)};
  const auto scales = [&](MatrixShape of) { return scale_shape(p.granularity, of.rows, of.cols); };
  const bool by_column = options.scale_major == Major::mn;
  const Tensor q = make(shape, p.q.dtype, false, call.arguments.q);
  const Tensor scale = make(scales(shape), DType::f32, by_column, call.arguments.scale);
  const Tensor q_t = make(shape_t, p.q.dtype, false, call.arguments.q_t);
  const Tensor scale_t = make(scales(shape_t), DType::f32, true, call.arguments.scale_t);
  const int64_t groups[] = {p.groups};
  const Tensor ends = empty(groups, DType::i32, p.device);
  call.arguments.padded_ends = static_cast<int32_t*>(ends.data_ptr());
  run(call);
  return {q, scale, q_t, scale_t, ends};
}

}  // namespace cleave::torch_ops

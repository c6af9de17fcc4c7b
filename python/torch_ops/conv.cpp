#include "operands/conv_settings.h"

#include "autograd.h"
#include "ops.h"
#include "product.h"

namespace cleave::torch_ops {
namespace {

ConvCall describe(const ConvTensors& tensors, ConvOptions conv, const ProductOptions& options) {
  conv.d_type = dtype_of(options.out_dtype, "out_dtype");
  conv.activation = options.activation;
  ConvCall call = make_call(tensors, conv);
  set_options(options, call);
  return call;
}

Tensor convolve(const ConvTensors& tensors, const ConvOptions& conv,
                const ProductOptions& options) {
  ConvCall call = describe(tensors, conv, options);
  const Extents strides = channels_last_strides(call.shape, call.ndim);
  Tensor d = empty_strided(std::span(call.shape).first(call.ndim), strides.data(),
                           call.problem.d.dtype, call.problem.device);
  call.arguments.d = d.data_ptr();
  run(call);
  return d;
}

void convolve_out(const ConvTensors& tensors, const ConvOptions& conv,
                  const ProductOptions& options) {
  run(describe(tensors, conv, options));
}

}  // namespace

Tensor conv(const Tensor& input, const Tensor& weight, const MaybeTensor& bias,
            const Integers& stride, const Integers& padding, const Integers& dilation,
            int64_t groups) {
  return convolve({.input = read(input), .weight = read(weight), .bias = read(bias)},
                  fprop_options(weight.dim(), {stride, padding, dilation, groups}), {});
}

Tensor conv_full(const Tensor& input, const Tensor& weight, const MaybeTensor& bias,
                 const Integers& stride, const Integers& padding, const Integers& dilation,
                 int64_t groups, const MaybeTensor& c, double alpha, std::optional<double> beta,
                 Name<Activation> activation, std::optional<ScalarType> out_dtype,
                 Name<SplitKMode> split_k_mode, std::optional<int64_t> split_k_slices) {
  const ProductOptions options{alpha, beta, activation, out_dtype, split_k_mode, split_k_slices};
  return convolve({.input = read(input), .weight = read(weight), .c = read(c), .bias = read(bias)},
                  fprop_options(weight.dim(), {stride, padding, dilation, groups}), options);
}

void conv_out(const Tensor& input, const Tensor& weight, const MaybeTensor& bias,
              const Integers& stride, const Integers& padding, const Integers& dilation,
              int64_t groups, const MaybeTensor& c, double alpha, std::optional<double> beta,
              Name<Activation> activation, Name<SplitKMode> split_k_mode,
              std::optional<int64_t> split_k_slices, const Tensor& out) {
  const ProductOptions options{alpha, beta, activation, {}, split_k_mode, split_k_slices};
  convolve_out({.input = read_untracked(input, "input"),
                .weight = read_untracked(weight, "weight"),
                .c = read_untracked(c, "c"),
                .bias = read_untracked(bias, "bias"),
                .out = read_untracked(out, "out")},
               fprop_options(weight.dim(), {stride, padding, dilation, groups}), options);
  mark_written(out);
}

Tensor conv_dgrad(const Integers& input_size, const Tensor& weight, const Tensor& grad_output,
                  const Integers& stride, const Integers& padding, const Integers& dilation,
                  int64_t groups, const MaybeTensor& bias) {
  return convolve({.weight = read(weight), .grad_output = read(grad_output), .bias = read(bias)},
                  dgrad_options(input_size, weight.dim(), {stride, padding, dilation, groups}), {});
}

Tensor conv_dgrad_full(const Integers& input_size, const Tensor& weight, const Tensor& grad_output,
                       const Integers& stride, const Integers& padding, const Integers& dilation,
                       int64_t groups, const MaybeTensor& bias, const MaybeTensor& c, double alpha,
                       std::optional<double> beta, Name<Activation> activation,
                       std::optional<ScalarType> out_dtype, Name<SplitKMode> split_k_mode,
                       std::optional<int64_t> split_k_slices) {
  const ProductOptions options{alpha, beta, activation, out_dtype, split_k_mode, split_k_slices};
  return convolve(
      {.weight = read(weight), .grad_output = read(grad_output), .c = read(c), .bias = read(bias)},
      dgrad_options(input_size, weight.dim(), {stride, padding, dilation, groups}), options);
}

void conv_dgrad_out(const Integers& input_size, const Tensor& weight, const Tensor& grad_output,
                    const Integers& stride, const Integers& padding, const Integers& dilation,
                    int64_t groups, const MaybeTensor& bias, const MaybeTensor& c, double alpha,
                    std::optional<double> beta, Name<Activation> activation,
                    Name<SplitKMode> split_k_mode, std::optional<int64_t> split_k_slices,
                    const Tensor& out) {
  const ProductOptions options{alpha, beta, activation, {}, split_k_mode, split_k_slices};
  convolve_out({.weight = read_untracked(weight, "weight"),
                .grad_output = read_untracked(grad_output, "grad_output"),
                .c = read_untracked(c, "c"),
                .bias = read_untracked(bias, "bias"),
                .out = read_untracked(out, "out")},
               dgrad_options(input_size, weight.dim(), {stride, padding, dilation, groups}),
               options);
  mark_written(out);
}

Tensor conv_wgrad(const Tensor& input, const Integers& weight_size, const Tensor& grad_output,
                  const Integers& stride, const Integers& padding, const Integers& dilation,
                  int64_t groups) {
  return convolve({.input = read(input), .grad_output = read(grad_output)},
                  wgrad_options(weight_size, {stride, padding, dilation, groups}), {});
}

Tensor conv_wgrad_full(const Tensor& input, const Integers& weight_size, const Tensor& grad_output,
                       const Integers& stride, const Integers& padding, const Integers& dilation,
                       int64_t groups, const MaybeTensor& c, double alpha,
                       std::optional<double> beta, std::optional<ScalarType> out_dtype,
                       Name<SplitKMode> split_k_mode, std::optional<int64_t> split_k_slices) {
  const ProductOptions options{alpha,     beta,         Activation::none,
                               out_dtype, split_k_mode, split_k_slices};
  return convolve({.input = read(input), .grad_output = read(grad_output), .c = read(c)},
                  wgrad_options(weight_size, {stride, padding, dilation, groups}), options);
}

void conv_wgrad_out(const Tensor& input, const Integers& weight_size, const Tensor& grad_output,
                    const Integers& stride, const Integers& padding, const Integers& dilation,
                    int64_t groups, const MaybeTensor& c, double alpha, std::optional<double> beta,
                    Name<SplitKMode> split_k_mode, std::optional<int64_t> split_k_slices,
                    const Tensor& out) {
  const ProductOptions options{alpha, beta, Activation::none, {}, split_k_mode, split_k_slices};
  convolve_out({.input = read_untracked(input, "input"),
                .grad_output = read_untracked(grad_output, "grad_output"),
                .c = read_untracked(c, "c"),
                .out = read_untracked(out, "out")},
               wgrad_options(weight_size, {stride, padding, dilation, groups}), options);
  mark_written(out);
}

}  // namespace cleave::torch_ops

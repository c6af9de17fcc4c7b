#include <string_view>

#include "bindings.h"
#include "conv_docs.h"
#include "conv_parameters.h"
#include "errors.h"
#include "product.h"
#include "values.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

/// What a, b and d are called by those who never see them.
const char* roles(const ConvOptions& options) {
  if (options.transposed) return "a is input, b is weight, d is the output";
  switch (options.kind) {
    case Conv::dgrad:
      return "a is grad_output, b is weight, d is the input's gradient";
    case Conv::wgrad:
      return "a is grad_output, b is input, d is the weight's gradient";
    default:
      return "a is input, b is weight, d is the output";
  }
}

nb::object convolve(const ConvInputs& inputs, const ConvOptions& options,
                    const PlanOptions& plan_options, const LaunchOptions& launch_options) {
  TensorReader reader(launch_options.stream);
  ConvOperands operands(inputs, reader, options);
  if (operands.converted() && !launch_options.stream.is_none() && operands.problem.device != kCpu) {
    refuse_value(
        "convert is True and an array needs a copy, which is made on the current stream, but "
        "stream is given; make it the current one");
  }
  set_plan_options(plan_options, operands.problem);
  set_scalars(launch_options, operands);
  try {
    return plan_and_run(operands, launch_options, reader);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{} ({})", error.what(), roles(options)));
  }
}

template <int kAxes>
nb::object conv(nb::handle input, nb::handle weight, nb::handle bias, nb::handle stride,
                nb::handle padding, nb::handle dilation, nb::handle groups, nb::handle c,
                nb::handle alpha, nb::handle beta, nb::handle activation, nb::handle out,
                nb::handle out_dtype, nb::handle convert, nb::handle split_k_mode,
                nb::handle split_k_slices, nb::handle deterministic, nb::handle kernel,
                nb::handle precision, nb::handle stream, nb::handle workspace) {
  return convolve(
      {.input = input,
       .weight = weight,
       .c = c,
       .bias = bias,
       .out = out,
       .convert = parse_flag(convert, "convert")},
      parse_conv_options(Conv::fprop, kAxes,
                         {stride, padding, dilation, groups, activation, out_dtype}),
      {activation, out_dtype, split_k_mode, split_k_slices, deterministic, kernel, precision},
      {alpha, beta, stream, workspace});
}

template <int kAxes>
nb::object conv_dgrad(nb::handle input_size, nb::handle weight, nb::handle grad_output,
                      nb::handle stride, nb::handle padding, nb::handle dilation, nb::handle groups,
                      nb::handle bias, nb::handle c, nb::handle alpha, nb::handle beta,
                      nb::handle activation, nb::handle out, nb::handle out_dtype,
                      nb::handle convert, nb::handle split_k_mode, nb::handle split_k_slices,
                      nb::handle deterministic, nb::handle kernel, nb::handle precision,
                      nb::handle division, nb::handle stream, nb::handle workspace) {
  ConvOptions options = parse_conv_options(
      Conv::dgrad, kAxes, {stride, padding, dilation, groups, activation, out_dtype, division});
  options.size = parse_size(input_size, "input_size", kAxes);
  return convolve(
      {.weight = weight,
       .grad_output = grad_output,
       .c = c,
       .bias = bias,
       .out = out,
       .convert = parse_flag(convert, "convert")},
      options,
      {activation, out_dtype, split_k_mode, split_k_slices, deterministic, kernel, precision},
      {alpha, beta, stream, workspace});
}

template <int kAxes>
nb::object conv_wgrad(nb::handle input, nb::handle weight_size, nb::handle grad_output,
                      nb::handle stride, nb::handle padding, nb::handle dilation, nb::handle groups,
                      nb::handle accumulate, nb::handle c, nb::handle alpha, nb::handle beta,
                      nb::handle out, nb::handle out_dtype, nb::handle convert,
                      nb::handle split_k_mode, nb::handle split_k_slices, nb::handle deterministic,
                      nb::handle kernel, nb::handle precision, nb::handle stream,
                      nb::handle workspace) {
  ConvOptions options =
      parse_conv_options(Conv::wgrad, kAxes, {stride, padding, dilation, groups, {}, out_dtype});
  options.size = parse_size(weight_size, "weight_size", kAxes);
  const bool adds = parse_flag(accumulate, "accumulate");
  if (adds && (!given(out) || given(c))) {
    refuse_value("accumulate is True, but {}; pass out, to which is added, and no c",
                 given(out) ? "there is a c, too" : "there is no out to add to");
  }
  return convolve({.input = input,
                   .grad_output = grad_output,
                   .c = adds ? out : c,
                   .out = out,
                   .convert = parse_flag(convert, "convert")},
                  options,
                  {{}, out_dtype, split_k_mode, split_k_slices, deterministic, kernel, precision},
                  {alpha, beta, stream, workspace});
}

template <int kAxes>
nb::object conv_transpose(nb::handle input, nb::handle weight, nb::handle bias, nb::handle stride,
                          nb::handle padding, nb::handle output_padding, nb::handle groups,
                          nb::handle dilation, nb::handle c, nb::handle alpha, nb::handle beta,
                          nb::handle activation, nb::handle out, nb::handle out_dtype,
                          nb::handle convert, nb::handle split_k_mode, nb::handle split_k_slices,
                          nb::handle deterministic, nb::handle kernel, nb::handle precision,
                          nb::handle stream, nb::handle workspace) {
  ConvOptions options = parse_conv_options(
      Conv::dgrad, kAxes, {stride, padding, dilation, groups, activation, out_dtype});
  if (options.same) {
    refuse_value("padding is \"same\", which transposed convolutions do not have; pass numbers");
  }
  options.transposed = true;
  options.output_padding = parse_numbers(output_padding, "output_padding", kAxes);
  return convolve(
      {.weight = weight,
       .grad_output = input,
       .c = c,
       .bias = bias,
       .out = out,
       .convert = parse_flag(convert, "convert")},
      options,
      {activation, out_dtype, split_k_mode, split_k_slices, deterministic, kernel, precision},
      {alpha, beta, stream, workspace});
}

template <int kAxes>
PlanObject plan_conv(nb::handle kind, nb::handle a, nb::handle b, nb::handle size, nb::handle bias,
                     nb::handle stride, nb::handle padding, nb::handle dilation, nb::handle groups,
                     nb::handle c, nb::handle activation, nb::handle out, nb::handle out_dtype,
                     nb::handle split_k_mode, nb::handle split_k_slices, nb::handle deterministic,
                     nb::handle kernel, nb::handle precision, nb::handle division) {
  ConvOptions options =
      parse_conv_options(parse_conv(kind), kAxes,
                         {stride, padding, dilation, groups, activation, out_dtype, division});
  if (options.kind != Conv::fprop) {
    options.size = parse_size(size, "size", kAxes);
  } else if (given(size)) {
    refuse_value(
        "size is given, but an output has the size that input and weight say; leave it "
        "out");
  }
  TensorReader reader{nb::none()};
  ConvOperands operands(with_operands(options.kind, a, b, {.c = c, .bias = bias, .out = out}),
                        reader, options);
  set_plan_options(
      {activation, out_dtype, split_k_mode, split_k_slices, deterministic, kernel, precision},
      operands.problem);
  return PlanObject(operands.problem, options, make_plan(operands.problem));
}

template <int kAxes>
void bind_rank(nb::module_& m) {
  const FunctionText conv_is = conv_text(kAxes), dgrad_is = conv_dgrad_text(kAxes),
                     wgrad_is = conv_wgrad_text(kAxes), transpose_is = conv_transpose_text(kAxes),
                     plan_is = plan_conv_text(kAxes);
  m.def(conv_is.name.c_str(), &conv<kAxes>, "input"_a.none(), "weight"_a.none(),
        "bias"_a = nb::none(), "stride"_a.none() = 1, "padding"_a.none() = 0,
        "dilation"_a.none() = 1, "groups"_a.none() = 1, nb::kw_only(), "c"_a = nb::none(),
        "alpha"_a.none() = 1.0, "beta"_a = nb::none(), "activation"_a.none() = "none",
        "out"_a = nb::none(), "out_dtype"_a = nb::none(), "convert"_a.none() = false,
        "split_k_mode"_a.none() = "auto", "split_k_slices"_a = nb::none(),
        "deterministic"_a.none() = true, "kernel"_a.none() = "auto", "precision"_a.none() = "tf32",
        "stream"_a = nb::none(), "workspace"_a = nb::none(), conv_is.doc.c_str(),
        nb::sig(conv_is.signature.c_str()));

  m.def(dgrad_is.name.c_str(), &conv_dgrad<kAxes>, "input_size"_a.none(), "weight"_a.none(),
        "grad_output"_a.none(), "stride"_a.none() = 1, "padding"_a.none() = 0,
        "dilation"_a.none() = 1, "groups"_a.none() = 1, nb::kw_only(), "bias"_a = nb::none(),
        "c"_a = nb::none(), "alpha"_a.none() = 1.0, "beta"_a = nb::none(),
        "activation"_a.none() = "none", "out"_a = nb::none(), "out_dtype"_a = nb::none(),
        "convert"_a.none() = false, "split_k_mode"_a.none() = "auto",
        "split_k_slices"_a = nb::none(), "deterministic"_a.none() = true,
        "kernel"_a.none() = "auto", "precision"_a.none() = "tf32", "division"_a.none() = "auto",
        "stream"_a = nb::none(), "workspace"_a = nb::none(), dgrad_is.doc.c_str(),
        nb::sig(dgrad_is.signature.c_str()));

  m.def(wgrad_is.name.c_str(), &conv_wgrad<kAxes>, "input"_a.none(), "weight_size"_a.none(),
        "grad_output"_a.none(), "stride"_a.none() = 1, "padding"_a.none() = 0,
        "dilation"_a.none() = 1, "groups"_a.none() = 1, nb::kw_only(),
        "accumulate"_a.none() = false, "c"_a = nb::none(), "alpha"_a.none() = 1.0,
        "beta"_a = nb::none(), "out"_a = nb::none(), "out_dtype"_a = nb::none(),
        "convert"_a.none() = false, "split_k_mode"_a.none() = "auto",
        "split_k_slices"_a = nb::none(), "deterministic"_a.none() = true,
        "kernel"_a.none() = "auto", "precision"_a.none() = "tf32", "stream"_a = nb::none(),
        "workspace"_a = nb::none(), wgrad_is.doc.c_str(), nb::sig(wgrad_is.signature.c_str()));

  m.def(transpose_is.name.c_str(), &conv_transpose<kAxes>, "input"_a.none(), "weight"_a.none(),
        "bias"_a = nb::none(), "stride"_a.none() = 1, "padding"_a.none() = 0,
        "output_padding"_a.none() = 0, "groups"_a.none() = 1, "dilation"_a.none() = 1,
        nb::kw_only(), "c"_a = nb::none(), "alpha"_a.none() = 1.0, "beta"_a = nb::none(),
        "activation"_a.none() = "none", "out"_a = nb::none(), "out_dtype"_a = nb::none(),
        "convert"_a.none() = false, "split_k_mode"_a.none() = "auto",
        "split_k_slices"_a = nb::none(), "deterministic"_a.none() = true,
        "kernel"_a.none() = "auto", "precision"_a.none() = "tf32", "stream"_a = nb::none(),
        "workspace"_a = nb::none(), transpose_is.doc.c_str(),
        nb::sig(transpose_is.signature.c_str()));

  m.def(plan_is.name.c_str(), &plan_conv<kAxes>, "kind"_a.none(), "a"_a.none(), "b"_a.none(),
        nb::kw_only(), "size"_a = nb::none(), "bias"_a = nb::none(), "stride"_a.none() = 1,
        "padding"_a.none() = 0, "dilation"_a.none() = 1, "groups"_a.none() = 1, "c"_a = nb::none(),
        "activation"_a.none() = "none", "out"_a = nb::none(), "out_dtype"_a = nb::none(),
        "split_k_mode"_a.none() = "auto", "split_k_slices"_a = nb::none(),
        "deterministic"_a.none() = true, "kernel"_a.none() = "auto", "precision"_a.none() = "tf32",
        "division"_a.none() = "auto", plan_is.doc.c_str(), nb::sig(plan_is.signature.c_str()));
}

}  // namespace

void bind_conv(nb::module_& m) {
  bind_rank<1>(m);
  bind_rank<2>(m);
  bind_rank<3>(m);
}

}  // namespace cleave::python

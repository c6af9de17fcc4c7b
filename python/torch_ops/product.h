// What gemm, scaled_gemm, grouped_gemm and the convolutions share.
#pragma once

#include "arguments.h"
#include "autograd.h"
#include "operands/gemm_operands.h"
#include "precision.h"

namespace cleave::torch_ops {

/// A form that writes to its arguments, whose D is quantised or whose weight is packed has no gradients, and refuses
/// what requires them.
template <class Call>
constexpr bool kHasGradients =
    !Call::template has<arg::Out>() && !Call::template has<arg::OutScale>() && !Call::template has<arg::Packed>();

/// nullopt if there is no such argument.
template <class P, class Call>
std::optional<Operand> operand(const Call& call) {
  if constexpr (!Call::template has<P>()) {
    return std::nullopt;
  } else if constexpr (kHasGradients<Call>) {
    return read(call.template get<P>());
  } else {
    return read_untracked(call.template get<P>(), P::name());
  }
}

/// By name, whether it is required or not.
template <Text kName, class Call>
std::optional<Operand> operand_named(const Call& call) {
  if constexpr (Call::template has<NullableArgument<kName>>()) {
    return operand<NullableArgument<kName>>(call);
  } else {
    return operand<MaybeTensorArgument<kName>>(call);
  }
}

template <class Call>
GemmTensors tensors_of(const Call& call) {
  return {.a = operand<arg::A>(call),
          .b = Call::template has<arg::Packed>() ? operand<arg::Packed>(call) : operand<arg::B>(call),
          .c = operand<arg::C>(call),
          .bias = operand<arg::Bias>(call),
          .out = operand<arg::Out>(call),
          .scale_a = operand_named<"scale_a">(call),
          .scale_b = operand_named<"scale_b">(call),
          .scale_d = operand<arg::ScaleD>(call),
          .amax = operand<arg::Amax>(call),
          .azp = operand<arg::Azp>(call),
          .azp_adj = operand<arg::AzpAdj>(call),
          .scales = operand<arg::Scales>(call),
          .zeros = operand_named<"zeros">(call),
          .global_scale = operand_named<"global_scale">(call),
          .offs = operand_named<"offs">(call),
          .indptr = operand<arg::Indptr>(call),
          .starts = operand<arg::Starts>(call),
          .sizes = operand<arg::Sizes>(call),
          .counts = operand<arg::Counts>(call),
          .gather = operand<arg::Gather>(call)};
}

/// As epilogue_tensors (operands/epilogue_values.h) does. Without gradients, inputs that require them are refused.
EpilogueTensors read_epilogue(const EpilogueFunction& function, const std::vector<Tensor>& tensors,
                              const std::vector<double>& numbers, const std::vector<int64_t>& number_places,
                              bool has_gradients);

template <class Call>
EpilogueTensors epilogue_of(const Call& call) {
  call.template get<arg::Backward>().read([](std::string_view) {});
  return read_epilogue(call.template get<arg::Epilogue>().function(), call.template get<arg::EpilogueInputs>(),
                       call.template get<arg::Numbers>(), call.template get<arg::NumberPlaces>(), kHasGradients<Call>);
}

/// Reads the options that matrices and convolutions share. `type`: the operands'.
template <class Options, class Call>
void read_options(const Call& call, DType type, bool is_conv, Options& options) {
  std::optional<ScalarType> out_dtype;
  call.template read<arg::OutDtype>(out_dtype);
  options.d_type = dtype_of(out_dtype, "out_dtype");
  call.template read<arg::Activation>(options.activation);
  call.template read<arg::SplitKMode>(options.plan.split_k_mode);
  std::optional<int64_t> slices;
  call.template read<arg::SplitKSlices>(slices);
  options.plan.split_k_slices = slice_count(slices);
  call.template read<arg::UseFastAccum>(options.plan.fast_accumulation);
  call.template read<arg::StaticB>(options.plan.static_b);
  if (type == DType::f32) options.plan.precision = current_precision(is_conv);
}

template <class Call>
void read_scalars(const Call& call, ProductCall& product) {
  double alpha = 1.0;
  std::optional<double> beta;
  call.template read<arg::Alpha>(alpha);
  call.template read<arg::Beta>(beta);
  std::optional<float> rounded;
  if (beta) rounded = float32_of(*beta, "beta");
  set_scalars(float32_of(alpha, "alpha"), rounded, product);
}

/// New scales of D, laid out as the problem says.
Tensor make_scales(GemmCall& product);

/// Plans and enqueues on the current stream.
void run(const ProductCall& call);

/// The same, into an `out`.
template <class Call>
void run_into_out(const Call& call, const ProductCall& product) {
  run(product);
  mark_written(call.template get<arg::Out>());
  if constexpr (Call::template has<arg::Amax>()) mark_written(call.template get<arg::Amax>());
}

/// The same, into D and the epilogue function's other outputs, which `make_output` makes as it made D.
template <class MakeOutput>
std::vector<Tensor> run_into(const Tensor& d, const EpilogueTensors& epilogue, ProductCall& product,
                             const MakeOutput& make_output) {
  std::vector<Tensor> results{d};
  for (size_t i = 0; i < epilogue.outputs.size(); ++i) {
    const DType dtype = product.problem.epilogue.outputs[i].dtype;
    results.push_back(make_output(product.output_shapes[i], dtype, product.arguments.epilogue_outputs[i]));
  }
  run(product);
  return results;
}

/// Plans (or finds the plan of an equal problem) and enqueues on the current stream. Returns D, unless there is an
/// `out`; with an epilogue function D and its other outputs, and with `out_scale` D and its scales.
template <class Call>
auto multiply(const Call& call, GemmOptions form = {}) {
  GemmTensors tensors = tensors_of(call);
  if constexpr (Call::template has<arg::Epilogue>()) tensors.epilogue = epilogue_of(call);
  read_options(call, tensors.a->dtype, false, form);
  call.template read<arg::Alignment>(form.alignment);
  call.template read<arg::SlotsOfRow>(form.top_k);
  call.template read<arg::ZeroRest>(form.zero_rest);
  call.template read<arg::OutScale>(form.out_scale);
  call.template read<arg::ScaleMajor>(form.scale_major);
  call.template read<arg::UseUe8m0>(form.ue8m0);
  GemmCall product = make_call(tensors, form);
  check_options_of_groups(form, product.problem);
  read_scalars(call, product);
  if constexpr (Call::template has<arg::Out>()) {
    run_into_out(call, product);
  } else {
    const GemmProblem& p = product.problem;
    const auto shape = product.d_shape();
    const auto shape_of_d = std::span(shape).subspan(product.batched ? 0 : 1);
    Tensor d = make(shape_of_d, p.d.dtype, p.device, product.arguments.d);
    if constexpr (Call::template has<arg::Epilogue>()) {
      return run_into(d, tensors.epilogue, product, [&](const OutputShape& shape, DType dtype, void*& data) {
        return make(shape.span(), dtype, p.device, data);
      });
    } else if constexpr (Call::template has<arg::OutScale>()) {
      const Tensor scales = make_scales(product);
      run(product);
      return std::tuple{d, scales};
    } else {
      run(product);
      return d;
    }
  }
}

}  // namespace cleave::torch_ops

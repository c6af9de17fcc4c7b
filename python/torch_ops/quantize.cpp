#include "operands/quantize_operands.h"

#include "product.h"

namespace cleave::torch_ops {
namespace {

void run(const QuantizeCall& call) {
  plan(call.problem)->run(call.arguments, current_stream(call.problem.device));
}

struct Quantized {
  Tensor q;
  MaybeTensor scale, zero;  // unless they were given; zero unless q is symmetric
  MaybeTensor sum;          // with the residual
};

/// Makes what is to be returned, and runs.
Quantized run_new(const QuantizeTensors& tensors, const QuantizeOptions& options) {
  QuantizeCall call = make_call(tensors, options);
  const QuantizeProblem& p = call.problem;
  const int64_t shape[] = {p.rows, p.cols};
  Quantized made{.q = make(shape, p.q.dtype, p.device, call.arguments.q)};
  if (!p.given_scale) {
    const auto [rows, cols] = scale_shape(p.granularity, p.rows, p.cols);
    const int64_t scale_shape[] = {rows, cols};
    const bool by_column = options.scale_major == Major::mn;
    made.scale = make(scale_shape, DType::f32, p.device, call.arguments.scale, by_column);
    if (!p.symmetric) made.zero = make(scale_shape, DType::i32, p.device, call.arguments.zero);
  }
  if (p.has_residual) made.sum = make(shape, p.residual_out.dtype, p.device, call.arguments.residual_out);
  run(call);
  return made;
}

using X = TensorArgument<"x">;
using Scale = TensorArgument<"scale">;
using Offs = TensorArgument<"offs">;
using Smooth = MaybeTensorArgument<"smooth">;
using Zero = MaybeTensorArgument<"zero">;
using Dtype = Argument<"dtype", "ScalarType", ScalarType>;
using ByRow = NameArgument<"granularity", Granularity, "'row'">;
using ByBlock = NameArgument<"granularity", Granularity, "'block_1x128'">;
using ByTensor = NameArgument<"granularity", Granularity, "'tensor'">;
using ScaleOut = Argument<"scale_out", "Tensor(b!)", const Tensor&>;
using Residual = TensorArgument<"residual">;
using MaybeResidual = MaybeTensorArgument<"residual">;
using Weight = NullableArgument<"weight">;
using NormName = NameArgument<"norm", Norm, "'rms_norm'">;
using Eps = Argument<"eps", "float", double, "1e-06">;
using ZeroCentered = Argument<"zero_centered", "bool", bool, "False">;
using ResidualOut = Argument<"residual_out", "Tensor(d!)?", const MaybeTensor&, "None">;
using NormedOut = Argument<"normed_out", "Tensor(e!)?", const MaybeTensor&, "None">;
using ZeroOut = Argument<"zero_out", "Tensor(c!)", const Tensor&>;

template <class Call>
QuantizeTensors quantize_tensors(const Call& call) {
  const bool written = Call::template has<ScaleOut>();
  return {.x = operand<X>(call),
          .q = operand<arg::Out>(call),
          .scale = written ? operand<ScaleOut>(call) : operand<Scale>(call),
          .zero = written ? operand<ZeroOut>(call) : operand<Zero>(call),
          .smooth = operand<Smooth>(call),
          .weight = operand<Weight>(call),
          .bias = operand<arg::Bias>(call),
          .residual = Call::template has<Residual>() ? operand<Residual>(call) : operand<MaybeResidual>(call),
          .residual_out = operand<ResidualOut>(call),
          .normed = operand<NormedOut>(call),
          .offs = operand<Offs>(call)};
}

template <class Call>
QuantizeOptions quantize_options(const Call& call, QuantizeOptions form = {}) {
  call.template read<ByRow>(form.granularity);
  call.template read<ByTensor>(form.granularity);
  call.template read<ByBlock>(form.granularity);
  call.template read<arg::ScaleMajor>(form.scale_major);
  call.template read<arg::UseUe8m0>(form.ue8m0);
  call.template read<NormName>(form.norm);
  call.template read<ZeroCentered>(form.zero_centered);
  if constexpr (Call::template has<Eps>()) form.eps = float32_of(call.template get<Eps>(), "eps");
  if constexpr (Call::template has<Dtype>()) {
    form.dtype = dtype_of(call.template get<Dtype>(), "dtype");
  }
  return form;
}

template <class Call>
QuantizeOptions static_options_of(const Call& call) {
  return quantize_options(call, {.given_scale = true, .symmetric = !call.template get<Zero>().has_value()});
}

template <class... Written, class Call>
void run_into(const Call& call, const QuantizeOptions& options) {
  run(make_call(quantize_tensors(call), options));
  (mark_written(call.template get<Written>()), ...);
}

/// The quantize_normed operators, and into memory that is given; those of x + residual have names of their own: torch
/// tries the overloads of one name in turn, and puts the tensors of a call into the message of each that does not fit,
/// for which it waits for the GPU.
void add_normed(Operators& operators) {
  using Normed = List<NormName, Eps, ByRow, arg::Bias, ZeroCentered>;
  using Into = Concat<List<X, Weight>, Normed, List<MaybeResidual>>;
  using Static = List<NormName, Eps, ByTensor, arg::Bias, ZeroCentered, Zero>;
  operators.add("quantize_normed", Concat<List<X, Weight, Dtype>, Normed>(), List<arg::ScaleMajor, arg::UseUe8m0>(),
                [](const auto& call) {
                  const Quantized made = run_new(quantize_tensors(call), quantize_options(call));
                  return std::tuple{made.q, *made.scale};
                });
  operators.add("quantize_normed_sum", Concat<List<X, Residual, Weight, Dtype>, Normed>(),
                List<arg::ScaleMajor, arg::UseUe8m0>(), [](const auto& call) {
                  const Quantized made = run_new(quantize_tensors(call), quantize_options(call));
                  return std::tuple{made.q, *made.scale, *made.sum};
                });
  operators.add(
      "quantize_normed.out", Into(), List<arg::Out, ScaleOut, ResidualOut, NormedOut>(),
      [](const auto& call) { run_into<arg::Out, ScaleOut, ResidualOut, NormedOut>(call, quantize_options(call)); });
  operators.add("quantize_normed_asymmetric", Concat<List<X, Weight>, Normed>(), List<>(), [](const auto& call) {
    const QuantizeOptions options = quantize_options(call, {.dtype = DType::i8, .symmetric = false});
    const Quantized made = run_new(quantize_tensors(call), options);
    return std::tuple{made.q, *made.scale, *made.zero};
  });
  operators.add("quantize_normed_sum_asymmetric", Concat<List<X, Residual, Weight>, Normed>(), List<>(),
                [](const auto& call) {
                  const QuantizeOptions options = quantize_options(call, {.dtype = DType::i8, .symmetric = false});
                  const Quantized made = run_new(quantize_tensors(call), options);
                  return std::tuple{made.q, *made.scale, *made.zero, *made.sum};
                });
  operators.add("quantize_normed_asymmetric.out", Into(), List<arg::Out, ScaleOut, ZeroOut, ResidualOut, NormedOut>(),
                [](const auto& call) {
                  run_into<arg::Out, ScaleOut, ZeroOut, ResidualOut, NormedOut>(
                      call, quantize_options(call, {.symmetric = false}));
                });
  operators.add("quantize_normed_static", Concat<List<X, Scale, Weight, Dtype>, Static>(), List<>(),
                [](const auto& call) { return run_new(quantize_tensors(call), static_options_of(call)).q; });
  operators.add("quantize_normed_sum_static", Concat<List<X, Residual, Scale, Weight, Dtype>, Static>(), List<>(),
                [](const auto& call) {
                  const Quantized made = run_new(quantize_tensors(call), static_options_of(call));
                  return std::tuple{made.q, *made.sum};
                });
  operators.add("quantize_normed_static.out", Concat<List<X, Scale, Weight>, Static, List<MaybeResidual>>(),
                List<arg::Out, ResidualOut, NormedOut>(),
                [](const auto& call) { run_into<arg::Out, ResidualOut, NormedOut>(call, static_options_of(call)); });
}

struct QuantizedBothWays {
  Tensor q, scale, q_t, scale_t;
  MaybeTensor ends;  // where there are groups
};

/// By rows and transposed, from one read.
template <class Call>
QuantizedBothWays run_both_ways(const Call& arguments) {
  const QuantizeOptions options =
      quantize_options(arguments, {.granularity = Granularity::block_1x128, .transpose = true});
  QuantizeCall call = make_call(quantize_tensors(arguments), options);
  const QuantizeProblem& p = call.problem;
  const auto matrix = [&](MatrixShape of, DType type, bool by_column, auto*& data) {
    const int64_t shape[] = {of.rows, of.cols};
    return make(shape, type, p.device, data, by_column);
  };
  const MatrixShape shape{p.rows, p.cols}, shape_t{p.cols, extent_t(p)};
  const auto scales = [&](MatrixShape of) { return scale_shape(p.granularity, of.rows, of.cols); };
  const bool by_column = options.scale_major == Major::mn;
  QuantizedBothWays made{
      .q = matrix(shape, p.q.dtype, false, call.arguments.q),
      .scale = matrix(scales(shape), DType::f32, by_column, call.arguments.scale),
      .q_t = matrix(shape_t, p.q.dtype, false, call.arguments.q_t),
      .scale_t = matrix(scales(shape_t), DType::f32, by_column || p.groups > 0, call.arguments.scale_t)};
  const int64_t groups[] = {p.groups};
  if (p.groups > 0) made.ends = make(groups, DType::i32, p.device, call.arguments.padded_ends);
  run(call);
  return made;
}

}  // namespace

void add_quantize(Operators& operators) {
  operators.add("quantize", List<X, Dtype, ByRow, Smooth>(), List<arg::ScaleMajor, arg::UseUe8m0>(),
                [](const auto& call) {
                  const Quantized made = run_new(quantize_tensors(call), quantize_options(call));
                  return std::tuple{made.q, *made.scale};
                });
  operators.add("quantize.out", List<X, ByRow, Smooth>(), List<arg::Out, ScaleOut>(),
                [](const auto& call) { run_into<arg::Out, ScaleOut>(call, quantize_options(call)); });
  operators.add("quantize_asymmetric", List<X, ByRow, Smooth>(), List<>(), [](const auto& call) {
    const QuantizeOptions options = quantize_options(call, {.dtype = DType::i8, .symmetric = false});
    const Quantized made = run_new(quantize_tensors(call), options);
    return std::tuple{made.q, *made.scale, *made.zero};
  });
  operators.add("quantize_asymmetric.out", List<X, ByRow, Smooth>(), List<arg::Out, ScaleOut, ZeroOut>(),
                [](const auto& call) {
                  run_into<arg::Out, ScaleOut, ZeroOut>(call, quantize_options(call, {.symmetric = false}));
                });
  operators.add("quantize_static", List<X, Scale, Dtype, ByTensor, Smooth, Zero>(), List<>(),
                [](const auto& call) { return run_new(quantize_tensors(call), static_options_of(call)).q; });
  operators.add("quantize_static.out", List<X, Scale, ByTensor, Smooth, Zero>(), List<arg::Out>(),
                [](const auto& call) { run_into<arg::Out>(call, static_options_of(call)); });
  add_normed(operators);
  operators.add("quantize_transposed", List<X, Dtype, ByBlock>(), List<arg::ScaleMajor, arg::UseUe8m0>(),
                [](const auto& call) {
                  const QuantizedBothWays made = run_both_ways(call);
                  return std::tuple{made.q, made.scale, made.q_t, made.scale_t};
                });
  operators.add("quantize_grouped", List<X, Offs, Dtype>(), List<arg::ScaleMajor, arg::UseUe8m0>(),
                [](const auto& call) {
                  const QuantizedBothWays made = run_both_ways(call);
                  return std::tuple{made.q, made.scale, made.q_t, made.scale_t, *made.ends};
                });
}

}  // namespace cleave::torch_ops

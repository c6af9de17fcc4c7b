#include "operands/conv_settings.h"

#include "product.h"

namespace cleave::torch_ops {
namespace {

using Input = TensorArgument<"input">;
using Weight = TensorArgument<"weight">;
using GradOutput = TensorArgument<"grad_output">;
using InputSize = Argument<"input_size", "SymInt[]", const Integers&>;
using WeightSize = Argument<"weight_size", "SymInt[]", const Integers&>;
using Stride = Argument<"stride", "int[1]", const Integers&, "1">;
using Padding = Argument<"padding", "int[1]", const Integers&, "0">;
using Dilation = Argument<"dilation", "int[1]", const Integers&, "1">;
using Groups = Argument<"groups", "int", int64_t, "1">;

template <class Call>
ConvSettings settings_of(const Call& call) {
  return {call.template get<Stride>(), call.template get<Padding>(), call.template get<Dilation>(),
          call.template get<Groups>()};
}

/// What the sizes say: those of an input or a weight are an argument where they are made.
template <class Call>
ConvOptions geometry_of(const Call& call) {
  if constexpr (Call::template has<WeightSize>()) {
    const Integers& size = call.template get<WeightSize>();
    return conv_options(Conv::wgrad, int64_t(size.size()), size, settings_of(call));
  } else if constexpr (Call::template has<InputSize>()) {
    return conv_options(Conv::dgrad, call.template get<Weight>().dim(), call.template get<InputSize>(),
                        settings_of(call));
  } else {
    return conv_options(Conv::fprop, call.template get<Weight>().dim(), {}, settings_of(call));
  }
}

/// A new tensor of a convolution: channels last, as D, or, of fewer dimensions, packed.
Tensor make_like_d(const ConvCall& call, const OutputShape& shape, DType dtype, void*& data) {
  if (shape.ndim < call.ndim) return make(shape.span(), dtype, call.problem.device, data);
  const Extents strides = channels_last_strides(shape.sizes, shape.ndim);
  Tensor tensor = empty_strided(shape.span(), strides.data(), dtype, call.problem.device);
  data = tensor.data_ptr();
  return tensor;
}

template <class Call>
auto convolve(const Call& call) {
  ConvTensors tensors{.input = operand<Input>(call),
                      .weight = operand<Weight>(call),
                      .grad_output = operand<GradOutput>(call),
                      .c = operand<arg::C>(call),
                      .bias = operand<arg::Bias>(call),
                      .out = operand<arg::Out>(call),
                      .scale_a = operand_named<"scale_a">(call),
                      .scale_b = operand_named<"scale_b">(call),
                      .scale_d = operand<arg::ScaleD>(call),
                      .amax = operand<arg::Amax>(call)};
  if constexpr (Call::template has<arg::Epilogue>()) tensors.epilogue = epilogue_of(call);
  ConvOptions options = geometry_of(call);
  read_options(call, (tensors.weight ? tensors.weight : tensors.input)->dtype, true, options);
  ConvCall product = make_call(tensors, options);
  read_scalars(call, product);
  if constexpr (Call::template has<arg::Out>()) {
    run_into_out(call, product);
  } else {
    const auto make_output = [&](const OutputShape& shape, DType dtype, void*& data) {
      return make_like_d(product, shape, dtype, data);
    };
    Tensor d = make_output({product.shape, product.ndim}, product.problem.d.dtype, product.arguments.d);
    if constexpr (Call::template has<arg::Epilogue>()) {
      return run_into(d, tensors.epilogue, product, make_output);
    } else {
      run(product);
      return d;
    }
  }
}

/// The forms of an operator: with few arguments, with all, with `out`, and with an epilogue function, which stands
/// between `Operands` and `Others`.
template <class Operands, class Others, class Scalars>
void add(Operators& operators, const std::string& name, Operands, Others, Scalars) {
  const auto function = [](const auto& call) { return convolve(call); };
  using Short = Concat<Operands, Others>;
  using Full = Concat<Short, List<arg::C>>;
  operators.add(name, Short(), List<>(), function);
  operators.add(name + ".full", Full(), Concat<Scalars, List<arg::OutDtype>, SplitK>(), function);
  operators.add(name + ".out", Full(), Concat<Scalars, SplitK, List<arg::Out>>(), function);
  operators.add(name + ".epilogue", Concat<Operands, Function, Others, List<arg::C>>(),
                Concat<List<arg::Alpha, arg::Beta, arg::OutDtype>, SplitK>(), function);
}

/// Arguments in the order of scaled_gemm's.
template <class Geometry>
void add_scaled_conv(Operators& operators) {
  const auto function = [](const auto& call) { return convolve(call); };
  using Scaled = List<Input, Weight, NullableArgument<"scale_a">, NullableArgument<"scale_b">>;
  using Added = Concat<List<arg::Bias>, Geometry>;
  using Operands = Concat<Scaled, Added>;
  using Short = Concat<Operands, List<arg::OutDtype, arg::UseFastAccum>>;
  using Rare = Concat<List<arg::C>, Scalars, List<arg::ScaleD>, SplitK>;
  operators.add("scaled_conv", Short(), List<>(), function);
  operators.add("scaled_conv.full", Short(), Rare(), function);
  operators.add("scaled_conv.out", Concat<Operands, List<arg::UseFastAccum>>(),
                Concat<Rare, List<arg::Out, arg::Amax>>(), function);
  operators.add("scaled_conv.epilogue", Concat<Scaled, Function, Added, List<arg::C, arg::ScaleD>>(),
                Concat<List<arg::Alpha, arg::Beta, arg::OutDtype, arg::UseFastAccum>, SplitK>(), function);
}

}  // namespace

void add_conv(Operators& operators) {
  using Geometry = List<Stride, Padding, Dilation, Groups>;
  add(operators, "conv", List<Input, Weight>(), Concat<List<arg::Bias>, Geometry>(), Scalars());
  add(operators, "conv_dgrad", List<InputSize, Weight, GradOutput>(), Concat<Geometry, List<arg::Bias>>(), Scalars());
  add_scaled_conv<Geometry>(operators);
  add(operators, "conv_wgrad", List<Input, WeightSize, GradOutput>(), Geometry(), List<arg::Alpha, arg::Beta>());
}

}  // namespace cleave::torch_ops

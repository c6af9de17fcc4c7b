#include <string_view>

#include "bindings.h"
#include "conv_docs.h"
#include "conv_parameters.h"
#include "define.h"
#include "errors.h"
#include "product.h"

namespace nb = nanobind;

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

using InputSize = Other<"input_size", "tuple[int, ...]">;
using WeightSize = Other<"weight_size", "tuple[int, ...]">;
using Size = Other<"size", "tuple[int, ...] | None", "None">;
using OutputPadding = Other<"output_padding", "object", "0">;

nb::object convolve(const ConvInputs& inputs, const ConvOptions& options, const CallArguments& call) {
  TensorReader reader(call.get<arg::Stream>());
  ConvOperands operands(inputs, reader, options);
  if (operands.converted() && given(call.get<arg::Stream>()) && operands.problem.device != kCpu) {
    refuse_value(
        "convert is True and an array needs a copy, which is made on the current stream, but "
        "stream is given; make it the current one");
  }
  set_scalars(call, operands);
  try {
    return plan_and_run(operands, call, reader);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{} ({})", error.what(), roles(options)));
  }
}

template <class Call>
ConvInputs inputs_of(const Call& call) {
  return {.input = call.template get<arg::Input>(),
          .weight = call.template get<arg::Weight>(),
          .grad_output = call.template get<arg::GradOutput>(),
          .c = call.template get<arg::C>(),
          .bias = call.template get<arg::Bias>(),
          .out = call.template get<arg::Out>(),
          .convert = arg::Convert::parse(call.template get<arg::Convert>())};
}

template <class Call>
nb::object conv(int axes, const Call& call) {
  const ConvOptions options = parse_conv_options(Conv::fprop, axes, call, call);
  return convolve(inputs_of(call), options, call);
}

template <class Call>
nb::object conv_dgrad(int axes, const Call& call) {
  ConvOptions options = parse_conv_options(Conv::dgrad, axes, call, call);
  options.size = parse_size(call.template get<InputSize>(), InputSize::name(), axes);
  return convolve(inputs_of(call), options, call);
}

template <class Call>
nb::object conv_wgrad(int axes, const Call& call) {
  ConvOptions options = parse_conv_options(Conv::wgrad, axes, call, call);
  options.size = parse_size(call.template get<WeightSize>(), WeightSize::name(), axes);
  ConvInputs inputs = inputs_of(call);
  bool accumulate = false;
  call.template read<arg::Accumulate>(accumulate);
  if (accumulate && (!given(inputs.out) || given(inputs.c))) {
    refuse_value("accumulate is True, but {}; pass out, to which is added, and no c",
                 given(inputs.out) ? "there is a c, too" : "there is no out to add to");
  }
  if (accumulate) inputs.c = inputs.out;
  return convolve(inputs, options, call);
}

template <class Call>
nb::object conv_transpose(int axes, const Call& call) {
  ConvOptions options = parse_conv_options(Conv::dgrad, axes, call, call);
  if (options.same) {
    refuse_value("padding is \"same\", which transposed convolutions do not have; pass numbers");
  }
  options.transposed = true;
  options.output_padding = parse_numbers(call.template get<OutputPadding>(), OutputPadding::name(), axes);
  ConvInputs inputs = inputs_of(call);
  inputs.grad_output = std::exchange(inputs.input, {});
  return convolve(inputs, options, call);
}

template <class Call>
PlanObject plan_conv(int axes, const Call& call) {
  const Conv kind = arg::Kind::parse(call.template get<arg::Kind>());
  ConvOptions options = parse_conv_options(kind, axes, call, call);
  const nb::handle size = call.template get<Size>();
  if (kind != Conv::fprop) {
    options.size = parse_size(size, Size::name(), axes);
  } else if (given(size)) {
    refuse_value(
        "size is given, but an output has the size that input and weight say; leave it "
        "out");
  }
  TensorReader reader{nb::none()};
  const ConvInputs others{
      .c = call.template get<arg::C>(), .bias = call.template get<arg::Bias>(), .out = call.template get<arg::Out>()};
  ConvOperands operands(with_operands(kind, call.template get<arg::A>(), call.template get<arg::B>(), others), reader,
                        options);
  return PlanObject(operands.problem, options, make_plan(operands.problem));
}

/// The functions of images with so many axes.
void bind_rank(nb::module_& m, int axes) {
  using Result = List<arg::Activation, arg::Out, arg::OutDtype>;
  using How = Concat<SplitK, List<arg::Precision>>;
  using Options = Concat<List<arg::C>, Scalars, Result, List<arg::Convert>, How, Place>;
  using Division = List<arg::Division>;
  const auto add = [&](const FunctionText& text, auto positional, auto keywords, const auto& function) {
    define(m, text.name.c_str(), positional, keywords, "Array", text.doc.c_str(),
           [axes, function](const auto& call) { return function(axes, call); });
  };

  add(conv_text(axes), Concat<List<arg::Input, arg::Weight, arg::Bias>, Geometry>(), Options(),
      [](int axes, const auto& call) { return conv(axes, call); });
  add(conv_dgrad_text(axes), Concat<List<InputSize, arg::Weight, arg::GradOutput>, Geometry>(),
      Concat<List<arg::Bias>, Options, Division>(), [](int axes, const auto& call) { return conv_dgrad(axes, call); });
  add(conv_wgrad_text(axes), Concat<List<arg::Input, WeightSize, arg::GradOutput>, Geometry>(),
      Concat<List<arg::Accumulate>, Without<Options, List<arg::Activation>>>(),
      [](int axes, const auto& call) { return conv_wgrad(axes, call); });
  add(conv_transpose_text(axes),
      List<arg::Input, arg::Weight, arg::Bias, arg::Stride, arg::Padding, OutputPadding, arg::Groups, arg::Dilation>(),
      Options(), [](int axes, const auto& call) { return conv_transpose(axes, call); });

  const FunctionText plan = plan_conv_text(axes);
  define(m, plan.name.c_str(), List<arg::Kind, arg::A, arg::B>(),
         Concat<List<Size>, Geometry, List<arg::Bias, arg::C>, Result, How, Division>(), "GemmPlan", plan.doc.c_str(),
         [axes](const auto& call) { return plan_conv(axes, call); });
}

}  // namespace

void bind_conv(nb::module_& m) {
  for (int axes = 1; axes <= 3; ++axes) bind_rank(m, axes);
}

}  // namespace cleave::python

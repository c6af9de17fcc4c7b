#include <string_view>

#include "call/define.h"
#include "inputs/conv_operands.h"
#include "module/bindings.h"
#include "module/errors.h"
#include "operands/roles.h"
#include "product/conv_docs.h"
#include "product/product.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

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
  return with_roles(options.kind, [&] { return plan_and_run(operands, call, reader); }, options.transposed);
}

template <class Call>
nb::object conv(int axes, const Call& call) {
  const ConvOptions options = parse_conv_options(Conv::fprop, axes, call, call);
  return convolve(call, options, call);
}

template <class Call>
nb::object conv_dgrad(int axes, const Call& call) {
  ConvOptions options = parse_conv_options(Conv::dgrad, axes, call, call);
  options.size = parse_size(call.template get<InputSize>(), InputSize::name(), axes);
  return convolve(call, options, call);
}

template <class Call>
nb::object conv_wgrad(int axes, const Call& call) {
  ConvOptions options = parse_conv_options(Conv::wgrad, axes, call, call);
  options.size = parse_size(call.template get<WeightSize>(), WeightSize::name(), axes);
  ConvInputs inputs(call);
  const nb::handle out = first_output(inputs.get<arg::Out>());
  bool accumulate = false;
  call.template read<arg::Accumulate>(accumulate);
  if (accumulate && (!given(out) || given(inputs.get<arg::C>()))) {
    refuse_value("accumulate is True, but {}; pass out, to which is added, and no c",
                 given(out) ? "there is a c, too" : "there is no out to add to");
  }
  if (accumulate) inputs.set<arg::C>(out);
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
  ConvInputs inputs(call);
  inputs.set<arg::GradOutput>(inputs.get<arg::Input>());
  inputs.set<arg::Input>({});
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
  const ConvOperands operands(with_operands(kind, call.template get<arg::A>(), call.template get<arg::B>(), call),
                              reader, options);
  return with_roles(kind, [&] {
    return PlanObject(operands.problem, options, make_plan(operands.problem),
                      backward_of(call.template get<arg::Epilogue>()));
  });
}

/// What texts call images with 1 to 3 axes.
struct Words {
  const char *name, *transpose, *scaled, *image, *filter, *output, *format;
};

constexpr Words kWords[] = {
    {"conv1d", "conv_transpose1d", "scaled_conv1d", "W", "S", "Q", "layout with the channels last"},
    {"conv2d", "conv_transpose2d", "scaled_conv2d", "H, W", "R, S", "P, Q", "channels_last"},
    {"conv3d", "conv_transpose3d", "scaled_conv3d", "D, H, W", "T, R, S", "O, P, Q", "channels_last_3d"}};

std::string fill(const char* text, int axes) {
  const Words& words = kWords[axes - 1];
  return fmt::format(fmt::runtime(text), fmt::arg("name", words.name), fmt::arg("transpose", words.transpose),
                     fmt::arg("scaled", words.scaled), fmt::arg("image", words.image), fmt::arg("filter", words.filter),
                     fmt::arg("output", words.output), fmt::arg("format", words.format));
}

/// The functions of images with so many axes.
void bind_rank(nb::module_& m, int axes) {
  using Result = List<arg::Activation, arg::Epilogue, arg::Out, arg::OutDtype>;
  using How = Concat<SplitK, List<arg::Precision>>;
  using Options = Concat<List<arg::C>, Scalars, Result, List<arg::Convert>, How, Place>;
  using Scales = List<arg::ScaleD, arg::Amax, arg::UseFastAccum>;
  using Division = List<arg::Division>;
  const auto add = [&](const char* name, auto positional, auto keywords, const char* returns, const char* doc,
                       const auto& function) {
    define(m, fill(name, axes).c_str(), positional, keywords, returns, fill(doc, axes).c_str(),
           [axes, function](const auto& call) { return function(axes, call); });
  };

  add("{name}", Concat<List<arg::Input, arg::Weight, arg::Bias>, Geometry>(), Options(), "Array", kConvDoc,
      [](int axes, const auto& call) { return conv(axes, call); });
  add("{scaled}",
      Concat<List<arg::Input, arg::Weight, Required<arg::ScaleA>, Required<arg::ScaleB>, arg::Bias>, Geometry>(),
      Concat<Scales, Options>(), "Array", kScaledConvDoc, [](int axes, const auto& call) { return conv(axes, call); });
  add("{name}_dgrad", Concat<List<InputSize, arg::Weight, arg::GradOutput>, Geometry>(),
      Concat<List<arg::Bias>, Options, Division>(), "Array", kConvDgradDoc,
      [](int axes, const auto& call) { return conv_dgrad(axes, call); });
  add("{name}_wgrad", Concat<List<arg::Input, WeightSize, arg::GradOutput>, Geometry>(),
      Concat<List<arg::Accumulate>, Without<Options, List<arg::Activation>>>(), "Array", kConvWgradDoc,
      [](int axes, const auto& call) { return conv_wgrad(axes, call); });
  add("{transpose}",
      List<arg::Input, arg::Weight, arg::Bias, arg::Stride, arg::Padding, OutputPadding, arg::Groups, arg::Dilation>(),
      Options(), "Array", kConvTransposeDoc, [](int axes, const auto& call) { return conv_transpose(axes, call); });
  add("plan_{name}", List<arg::Kind, arg::A, arg::B>(),
      Concat<List<Size>, Geometry, List<arg::Bias, arg::C, arg::ScaleA, arg::ScaleB>, Scales, Result, How, Division>(),
      "GemmPlan", kPlanConvDoc, [](int axes, const auto& call) { return plan_conv(axes, call); });
}

}  // namespace

void bind_conv(nb::module_& m) {
  for (int axes = 1; axes <= 3; ++axes) bind_rank(m, axes);
}

}  // namespace cleave::python

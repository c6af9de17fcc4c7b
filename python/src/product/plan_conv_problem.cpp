// Planning a convolution without arrays, for tools that explain and compile on machines without a
// GPU.
#include <algorithm>

#include "call/define.h"
#include "call/mistakes.h"
#include "inputs/conv_parameters.h"
#include "inputs/epilogue.h"
#include "module/bindings.h"
#include "module/errors.h"
#include "product/conv_docs.h"
#include "product/plan_problem.h"
#include "product/product.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

/// An array of that shape in the order of memory that is served, as TensorReader would see it, were
/// there one.
Operand packed(DType dtype, int device, const Extents& shape, int ndim) {
  // Never read: planning wants an address for its alignment only.
  alignas(16) static char anywhere[16];
  Operand operand{.data = anywhere, .dtype = dtype, .device = device, .ndim = ndim};
  std::ranges::copy(shape, operand.shape);
  if (ndim == 1)
    operand.stride[0] = 1;
  else
    std::ranges::copy(channels_last_strides(shape, ndim), operand.stride);
  return operand;
}

Extents shape_of(int64_t images, int64_t channels, nb::handle axes, const char* name, int count) {
  const AxisNumbers numbers = parse_numbers(axes, name, count);
  Extents shape{images, channels};
  std::ranges::copy(numbers, shape.begin() + 2);
  return shape;
}

using Images = Integer<"images">;
using Size = Other<"size", "tuple[int, ...]">;
using Channels = Integer<"channels">;
using Filters = Integer<"filters">;
using FilterSize = Other<"filter_size", "object">;
using Direction = OneOf<"kind", Conv, "'fprop'">;

using Scaled = Word<"scaling", "'none'">;

/// The scales of operands, as operands.
void place_scaling(std::string_view text, int64_t filters, int device, ConvTensors& tensors) {
  if (text == "none") return;
  if (text != "tensor" && text != "row")
    refuse_value("scaling is \"{}\"; it must be \"none\", \"tensor\" or \"row\"{}", text,
                 near_name(std::string(text), {"none", "tensor", "row"}));
  tensors.scale_a = packed(DType::f32, device, {1}, 1);
  tensors.scale_b = packed(DType::f32, device, {text == "row" ? filters : 1}, 1);
}

/// What an epilogue function is given, whose D is of that shape.
Operand packed_input(InputShape input, DType type, int device, Extents shape, int ndim, bool is_filter) {
  const int line = is_filter ? 0 : 1;
  switch (input) {
    case InputShape::scalar:
      return packed(type, device, {}, 0);
    case InputShape::row:
    case InputShape::column:
      if ((input == InputShape::column) == is_filter) return packed(type, device, {shape[line]}, 1);
      shape[line] = 1;
      break;
    case InputShape::matrix:
      break;
  }
  return packed(type, device, shape, ndim);
}

template <class Call>
PlanObject plan_conv_problem(const Call& call) {
  const nb::handle size = call.template get<Size>();
  if (!PySequence_Check(size.ptr())) refuse_type("size must be a tuple, got {}", class_name(size));
  const int axes = int(nb::len(size));
  if (axes < 1 || axes > 3) {
    refuse_value("size has {} numbers; it must have one for each of 1 to 3 axes", axes);
  }
  const Conv kind = arg::Kind::parse(call.template get<Direction>());
  ConvOptions options = parse_conv_options(kind, axes, call, call);
  const int64_t groups = options.groups, channels = Channels::parse(call.template get<Channels>());
  if (groups < 1 || channels % groups != 0) {
    refuse_value("channels is {} and groups is {}; groups must divide channels", channels, groups);
  }
  const DType type = arg::OperandDtype::parse(call.template get<arg::OperandDtype>());
  const int device = parse_device(arg::Device::parse(call.template get<arg::Device>()));
  const int ndim = axes + 2;
  const Extents x = shape_of(Images::parse(call.template get<Images>()), channels, size, Size::name(), axes);
  const Extents w = shape_of(Filters::parse(call.template get<Filters>()), channels / groups,
                             call.template get<FilterSize>(), FilterSize::name(), axes);
  const Operand input = packed(type, device, x, ndim), weight = packed(type, device, w, ndim);

  ConvOptions forward = options;
  forward.kind = Conv::fprop;
  ConvTensors tensors{.input = input, .weight = weight};
  ConvCall made = make_call(tensors, forward);
  if (kind != Conv::fprop) {
    const Operand grad_output = packed(type, device, made.shape, ndim);
    const bool is_dgrad = kind == Conv::dgrad;
    options.size = is_dgrad ? x : w;
    tensors = {.grad_output = grad_output};
    (is_dgrad ? tensors.weight : tensors.input) = is_dgrad ? weight : input;
  }
  place_scaling(Scaled::parse(call.template get<Scaled>()), w[0], device, tensors);
  const Extents d = kind == Conv::fprop ? made.shape : kind == Conv::dgrad ? x : w;
  tensors.epilogue =
      EpilogueArguments(call.template get<arg::Epilogue>(), {}).read_types([&](InputShape shape, DType of) {
        return packed_input(shape, of, device, d, ndim, kind == Conv::wgrad);
      });
  made = make_call(tensors, options);
  GemmProblem& problem = made.problem;
  call.template read<arg::BiasKind>(problem.bias);
  if (problem.bias != Bias::none) {
    problem.bias_dtype = bias_type(problem);
    if (groups > 1) problem.bias_stride_batch = problem.n;
  }
  return PlanObject(problem, options, make_plan(problem), backward_of(call.template get<arg::Epilogue>()));
}

}  // namespace

void bind_plan_conv_problem(nb::module_& m) {
  using Options = Concat<Geometry,
                         List<Direction, arg::OperandDtype, arg::OutDtype, arg::BiasKind, arg::Activation,
                              arg::Epilogue, Scaled, arg::UseFastAccum, arg::Division>,
                         SplitK, List<arg::Precision, arg::Device>>;
  define(m, "plan_conv_problem", List<Images, Size, Channels, Filters, FilterSize>(), Options(), "GemmPlan",
         kPlanConvProblemDoc, [](const auto& call) { return plan_conv_problem(call); });
}

}  // namespace cleave::python

// Planning a convolution without arrays, for tools that explain and compile on machines without a
// GPU.
#include <algorithm>

#include "bindings.h"
#include "conv_docs.h"
#include "conv_parameters.h"
#include "define.h"
#include "errors.h"
#include "plan_problem.h"
#include "product.h"

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
  ConvCall made = make_call(ConvTensors{.input = input, .weight = weight}, forward);
  if (kind != Conv::fprop) {
    const Operand grad_output = packed(type, device, made.shape, ndim);
    const bool is_dgrad = kind == Conv::dgrad;
    options.size = is_dgrad ? x : w;
    ConvTensors tensors{.grad_output = grad_output};
    (is_dgrad ? tensors.weight : tensors.input) = is_dgrad ? weight : input;
    made = make_call(tensors, options);
  }
  GemmProblem& problem = made.problem;
  call.template read<arg::BiasKind>(problem.bias);
  if (problem.bias != Bias::none) {
    problem.bias_dtype = bias_type(problem);
    if (groups > 1) problem.bias_stride_batch = problem.n;
  }
  return PlanObject(problem, options, make_plan(problem));
}

}  // namespace

void bind_plan_conv_problem(nb::module_& m) {
  using Options =
      Concat<Geometry, List<Direction, arg::OperandDtype, arg::OutDtype, arg::BiasKind, arg::Activation, arg::Division>,
             SplitK, List<arg::Precision, arg::Device>>;
  define(m, "plan_conv_problem", List<Images, Size, Channels, Filters, FilterSize>(), Options(), "GemmPlan",
         kPlanConvProblemDoc, [](const auto& call) { return plan_conv_problem(call); });
}

}  // namespace cleave::python

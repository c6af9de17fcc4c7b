// Planning a convolution without arrays, for tools that explain and compile on machines without a
// GPU.
#include <nanobind/stl/string_view.h>

#include <algorithm>

#include "bindings.h"
#include "conv_docs.h"
#include "conv_parameters.h"
#include "errors.h"
#include "plan_object.h"
#include "plan_problem.h"
#include "product.h"
#include "values.h"

namespace nb = nanobind;
using namespace nb::literals;

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

PlanObject plan_conv_problem(int64_t images, nb::sequence size, int64_t channels, int64_t filters,
                             nb::handle filter_size, nb::handle stride, nb::handle padding,
                             nb::handle dilation, int64_t groups, nb::handle kind, nb::handle dtype,
                             nb::handle out_dtype, nb::handle activation, std::string_view bias,
                             nb::handle division, nb::handle split_k_mode,
                             nb::handle split_k_slices, nb::handle deterministic, nb::handle kernel,
                             nb::handle precision, std::string_view device_text) {
  const int axes = int(nb::len(size));
  if (axes < 1 || axes > 3) {
    refuse_value("size has {} numbers; it must have one for each of 1 to 3 axes", axes);
  }
  if (groups < 1 || channels % groups != 0) {
    refuse_value("channels is {} and groups is {}; groups must divide channels", channels, groups);
  }
  const DType type = parse_dtype(dtype, "dtype");
  const int device = parse_device(device_text), ndim = axes + 2;
  ConvOptions options = parse_conv_options(
      parse_conv(kind), axes,
      {stride, padding, dilation, nb::int_(groups), activation, out_dtype, division});
  const Extents x = shape_of(images, channels, size, "size", axes);
  const Extents w = shape_of(filters, channels / groups, filter_size, "filter_size", axes);
  const Operand input = packed(type, device, x, ndim), weight = packed(type, device, w, ndim);

  ConvOptions forward = options;
  forward.kind = Conv::fprop;
  ConvCall call = make_call(ConvTensors{.input = input, .weight = weight}, forward);
  if (options.kind != Conv::fprop) {
    const Operand grad_output = packed(type, device, call.shape, ndim);
    const bool is_dgrad = options.kind == Conv::dgrad;
    options.size = is_dgrad ? x : w;
    ConvTensors tensors{.grad_output = grad_output};
    (is_dgrad ? tensors.weight : tensors.input) = is_dgrad ? weight : input;
    call = make_call(tensors, options);
  }
  GemmProblem& problem = call.problem;
  set_plan_options(
      {activation, out_dtype, split_k_mode, split_k_slices, deterministic, kernel, precision},
      problem);
  problem.bias = parse_bias(bias);
  if (problem.bias != Bias::none) {
    problem.bias_dtype = bias_type(problem);
    if (groups > 1) problem.bias_stride_batch = problem.n;
  }
  return PlanObject(problem, options, make_plan(problem));
}

}  // namespace

void bind_plan_conv_problem(nb::module_& m) {
  m.def("plan_conv_problem", &plan_conv_problem, "images"_a, "size"_a, "channels"_a, "filters"_a,
        "filter_size"_a, nb::kw_only(), "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1,
        "groups"_a = 1, "kind"_a = "fprop", "dtype"_a = "bfloat16", "out_dtype"_a = nb::none(),
        "activation"_a = "none", "bias"_a = "none", "division"_a = "auto",
        "split_k_mode"_a = "auto", "split_k_slices"_a = nb::none(), "deterministic"_a = true,
        "kernel"_a = "auto", "precision"_a = "tf32", "device"_a = "cuda", kPlanConvProblemDoc,
        nb::sig(kPlanConvProblemSignature));
}

}  // namespace cleave::python

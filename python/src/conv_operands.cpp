#include "conv_operands.h"

#include "errors.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

nb::object copy_of(nb::handle array, const char* name) {
  const nb::object copy = array_type_of(array)->channels_last;
  if (!copy.is_none()) return copy(array);
  refuse_value(
      "{} is a {}, which convert=True cannot copy; only arrays of torch, NumPy, CuPy and "
      "JAX can be copied here",
      name, class_name(array));
}

}  // namespace

ConvInputs with_operands(Conv kind, nb::handle a, nb::handle b, ConvInputs others) {
  (kind == Conv::fprop ? others.input : others.grad_output) = a;
  (kind == Conv::wgrad ? others.input : others.weight) = b;
  return others;
}

ConvOperands::ConvOperands(const ConvInputs& inputs, TensorReader& reader,
                           const ConvOptions& options)
    : result_(options.kind == Conv::fprop ? inputs.input : inputs.grad_output, inputs.out) {
  ConvOptions with_convert = options;
  with_convert.may_convert = inputs.convert.has_value();
  static_cast<ConvCall&>(*this) = make_call(read(inputs, reader, options), with_convert);
}

ConvTensors ConvOperands::read(const ConvInputs& inputs, TensorReader& reader,
                               const ConvOptions& options) {
  using Order = std::optional<int64_t>(const Operand&);
  const auto tensor = [&](nb::handle array, const char* name, Order* stride) -> Operand {
    const TensorView view = reader.read(array, name);
    if (!inputs.convert.value_or(false) || view.ndim != options.axes + 2 || stride(view))
      return view;
    copies_.push_back(copy_of(array, name));
    return reader.read(copies_.back(), name);
  };
  ConvTensors tensors;
  if (inputs.grad_output.is_valid()) {
    tensors.grad_output =
        tensor(inputs.grad_output, options.transposed ? "input" : "grad_output", pixel_stride);
  }
  if (inputs.input.is_valid()) tensors.input = tensor(inputs.input, "input", pixel_stride);
  if (inputs.weight.is_valid()) tensors.weight = tensor(inputs.weight, "weight", filter_stride);
  if (given(inputs.c)) {
    tensors.c = tensor(inputs.c, "c", options.kind == Conv::wgrad ? filter_stride : pixel_stride);
  }
  tensors.bias = reader.read_given(inputs.bias, "bias");
  tensors.out = reader.read_written(inputs.out, "out");
  return tensors;
}

void ConvOperands::allocate(TensorReader& reader) {
  nb::list shape;
  for (int i = 0; i < ndim; ++i) shape.append(this->shape[i]);
  result_.allocate(&ArrayType::empty_channels_last, nb::tuple(shape), *this, reader);
}

}  // namespace cleave::python

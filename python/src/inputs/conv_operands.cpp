#include "inputs/conv_operands.h"

#include <fmt/ranges.h>

#include "call/values.h"
#include "cleave/epilogue.h"
#include "module/errors.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

using Order = std::optional<int64_t>(const Operand&);

/// The order of memory of what is made, and of C.
Order* order_of_d(const ConvOptions& options) {
  return options.kind == Conv::wgrad ? filter_stride : pixel_stride;
}

[[noreturn]] void refuse_conversion(nb::handle array, const char* name) {
  refuse_value(
      "{} is a {}, which convert=True cannot copy; only arrays of torch, NumPy, CuPy and "
      "JAX can be copied here",
      name, class_name(array));
}

nb::object copy_of(nb::handle array, const char* name) {
  const nb::object copy = array_type_of(array)->channels_last;
  if (copy.is_none()) refuse_conversion(array, name);
  return copy(array);
}

}  // namespace

ConvInputs with_operands(Conv kind, nb::handle a, nb::handle b, ConvInputs others) {
  kind == Conv::fprop ? others.set<arg::Input>(a) : others.set<arg::GradOutput>(a);
  kind == Conv::wgrad ? others.set<arg::Input>(b) : others.set<arg::Weight>(b);
  return others;
}

ConvOperands::ConvOperands(const ConvInputs& inputs, TensorReader& reader, const ConvOptions& options)
    : ConvOperands(inputs, reader, options, EpilogueArguments(inputs.get<arg::Epilogue>(), inputs.get<arg::Out>())) {}

ConvOperands::ConvOperands(const ConvInputs& inputs, TensorReader& reader, const ConvOptions& options,
                           EpilogueArguments epilogue)
    : results_(options.kind == Conv::fprop ? inputs.get<arg::Input>() : inputs.get<arg::GradOutput>(),
               std::move(epilogue)) {
  inputs.read<arg::Convert>(convert_);
  ConvOptions with_convert = options;
  with_convert.may_convert = inputs.get<arg::Convert>().is_valid();
  static_cast<ConvCall&>(*this) = make_call(read(inputs, reader, options), with_convert);
}

ConvTensors ConvOperands::read(const ConvInputs& inputs, TensorReader& reader, const ConvOptions& options) {
  const auto tensor = [&](nb::handle array, const char* name, Order* stride) -> std::optional<Operand> {
    if (!array.is_valid()) return std::nullopt;
    const TensorView view = reader.read(array, name);
    if (!convert_ || view.ndim != options.axes + 2 || stride(view)) return view;
    copies_.push_back(copy_of(array, name));
    return reader.read(copies_.back(), name);
  };
  ConvTensors tensors;
  tensors.grad_output =
      tensor(inputs.get<arg::GradOutput>(), options.transposed ? "input" : "grad_output", pixel_stride);
  tensors.input = tensor(inputs.get<arg::Input>(), "input", pixel_stride);
  tensors.weight = tensor(inputs.get<arg::Weight>(), "weight", filter_stride);
  if (given(inputs.get<arg::C>())) tensors.c = tensor(inputs.get<arg::C>(), "c", order_of_d(options));
  tensors.bias = reader.read<arg::Bias>(inputs);
  tensors.scale_a = reader.read<arg::ScaleA>(inputs);
  tensors.scale_b = reader.read<arg::ScaleB>(inputs);
  tensors.scale_d = reader.read<arg::ScaleD>(inputs);
  tensors.amax = reader.read_output<arg::Amax>(inputs);
  tensors.out = read_out(reader, options);
  tensors.epilogue = results_.epilogue().read(reader);
  for (size_t i = 0; convert_ && i < tensors.epilogue.inputs.size(); ++i) {
    std::optional<Operand>& input = tensors.epilogue.inputs[i].tensor;
    const auto& [name, shape] = tensors.epilogue.function->inputs()[i];
    if (input && shape == InputShape::matrix)
      input = tensor(results_.epilogue().input(i), name.c_str(), order_of_d(options));
  }
  return tensors;
}

std::optional<Operand> ConvOperands::read_out(TensorReader& reader, const ConvOptions& options) {
  const nb::handle array = results_.epilogue().out_of_d();
  if (!given(array)) return std::nullopt;
  const Operand out = reader.read_output(array, arg::Out::name());
  if (!convert_ || out.ndim != options.axes + 2 || !out.other_type.empty() || order_of_d(options)(out)) return out;
  if (may_overlap_itself(out)) {
    refuse_value(
        "out is {} with strides ({}), so that its elements may share addresses; pass one "
        "whose elements are apart",
        shape_text(out), fmt::join(out.stride, out.stride + out.ndim, ", "));
  }
  const auto type = array_type_of(array);
  if (type->empty_channels_last.is_none() || type->assign.is_none()) refuse_conversion(array, "out");
  staged_ = type->empty_channels_last(array, tuple_of({out.shape, size_t(out.ndim)}), dtype_name(out.dtype));
  return reader.read(staged_, "out");
}

nb::object ConvOperands::result() const {
  const nb::object d = results_.d().get();
  if (staged_.is_valid()) array_type_of(d)->assign(d, staged_);
  return results_.with_others(d);
}

void ConvOperands::allocate(TensorReader& reader) {
  results_.allocate(&ArrayType::empty_channels_last, Shape(shape).first(size_t(ndim)), *this, reader);
}

}  // namespace cleave::python

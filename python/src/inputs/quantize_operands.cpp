#include "inputs/quantize_operands.h"

#include <utility>

#include "array/array_type.h"
#include "call/values.h"
#include "module/errors.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

/// Which go together: what is found has no scales that are given, and the other way round.
void check_presence(const QuantizeInputs& inputs, const QuantizeOptions& options) {
  if (options.given_scale && given(inputs.get<arg::ScaleOut>())) {
    refuse_value("scale_out is given beside scale, but given scales are not written; leave one out");
  }
  const bool needs_zero = options.given_scale && !options.symmetric;
  if (needs_zero != given(inputs.get<arg::Zero>())) {
    refuse_value(
        "zero is {}; the zero points are given where, and only where, scale is given and "
        "symmetric is False",
        needs_zero ? "missing" : "given");
  }
}

/// The attributes of a cleave.Norm, as if they were arguments.
struct NormInputs {
  nb::object kind, weight, bias, eps, zero_centered;

  explicit NormInputs(nb::handle norm) {
    const auto read = [&](const char* name) {
      nb::object value = nb::steal(PyObject_GetAttrString(norm.ptr(), name));
      if (value.is_valid()) return value;
      PyErr_Clear();
      refuse_type("norm is {}; it must be cleave.rms_norm(weight, eps) or cleave.layer_norm(weight, bias, eps)",
                  nb::type_name(norm.type()).c_str());
    };
    kind = read("kind");
    weight = read("weight");
    bias = read("bias");
    eps = read("eps");
    zero_centered = read("zero_centered");
  }
};

}  // namespace

QuantizeOperands::QuantizeOperands(const QuantizeInputs& inputs, TensorReader& reader) : inputs_(inputs) {
  QuantizeOptions options{.given_scale = given(inputs.get<arg::Scale>())};
  inputs.read<arg::Granularity>(options.granularity);
  inputs.read<arg::ScaleMajor>(scale_major_);
  options.scale_major = scale_major_;
  options.dtype = parse_dtype(inputs.get<arg::QuantizedDtype>(), "dtype", kQuantizedTypes);
  inputs.read<arg::Symmetric>(options.symmetric);
  inputs.read<arg::Transpose>(options.transpose);
  inputs.read<arg::UseUe8m0>(options.ue8m0);
  check_presence(inputs, options);
  QuantizeTensors tensors{
      .x = reader.read<arg::X>(inputs),
      .q = reader.read_output<arg::Out>(inputs),
      .scale = options.given_scale ? reader.read<arg::Scale>(inputs) : reader.read_output<arg::ScaleOut>(inputs),
      .zero = reader.read<arg::Zero>(inputs),
      .smooth = reader.read<arg::Smooth>(inputs),
      .residual = reader.read<arg::Residual>(inputs),
      .residual_out = reader.read_output<arg::ResidualOut>(inputs),
      .normed = reader.read_output<arg::NormedOut>(inputs),
      .offs = reader.read<arg::Offs>(inputs)};
  if (const nb::handle norm = inputs.get<arg::QuantizedNorm>(); given(norm)) {
    const NormInputs parts(norm);
    options.norm = parse_name<Norm>(parts.kind, "norm.kind");
    options.eps = parse_scalar(parts.eps, "norm.eps");
    options.zero_centered = parse_flag(parts.zero_centered, "norm.zero_centered");
    if (given(parts.weight)) tensors.weight = reader.read(parts.weight, "norm.weight");
    if (given(parts.bias)) tensors.bias = reader.read(parts.bias, "norm.bias");
  }
  static_cast<QuantizeCall&>(*this) = make_call(tensors, options);
}

void* QuantizeOperands::make(Shape shape, DType dtype, bool turned, TensorReader& reader) {
  const nb::object array =
      reader.make(&ArrayType::empty, inputs_.get<arg::X>(), shape, dtype, problem.device, "`out` and `scale_out`");
  results_.push_back({array, true, turned});
  return reader.read(array, "the result").data;
}

void QuantizeOperands::allocate(TensorReader& reader) {
  const QuantizeProblem& p = problem;
  const bool turned = scale_major_ == Major::mn;
  const auto add = [&](nb::handle array, MatrixShape shape, DType dtype, bool turned, auto*& data) {
    if (given(array)) {
      results_.push_back({nb::borrow(array)});
      return;
    }
    if (turned) std::swap(shape.rows, shape.cols);
    data = static_cast<std::remove_reference_t<decltype(data)>>(
        make(std::array{shape.rows, shape.cols}, dtype, turned, reader));
  };
  add(inputs_.get<arg::Out>(), {p.rows, p.cols}, p.q.dtype, false, arguments.q);
  add(p.given_scale ? inputs_.get<arg::Scale>() : inputs_.get<arg::ScaleOut>(),
      scale_shape(p.granularity, p.rows, p.cols), DType::f32, turned, arguments.scale);
  if (!p.symmetric) {
    const int64_t count = p.granularity == Granularity::tensor ? 1 : p.rows;
    add(inputs_.get<arg::Zero>(), {count, 1}, DType::i32, false, arguments.zero);
  }
  if (p.has_transpose) {
    add({}, {p.cols, extent_t(p)}, p.q.dtype, false, arguments.q_t);
    add({}, scale_shape(p.granularity, p.cols, extent_t(p)), DType::f32, turned || p.groups > 0, arguments.scale_t);
  }
  if (p.groups > 0)
    arguments.padded_ends = static_cast<int32_t*>(make(std::array{p.groups}, DType::i32, false, reader));
  if (p.has_residual)
    add(inputs_.get<arg::ResidualOut>(), {p.rows, p.cols}, p.residual_out.dtype, false, arguments.residual_out);
  if (p.has_normed) results_.push_back({nb::borrow(inputs_.get<arg::NormedOut>())});
}

nb::tuple QuantizeOperands::results() const {
  nb::list list;
  for (const Result& result : results_) {
    const nb::object array = result.made ? finished(inputs_.get<arg::X>(), result.array) : result.array;
    list.append(result.turned ? nb::object(array.attr("T")) : array);
  }
  return nb::tuple(list);
}

}  // namespace cleave::python

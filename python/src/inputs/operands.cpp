#include "inputs/operands.h"

#include "call/values.h"
#include "launch/product.h"
#include "module/errors.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

GemmTensors read_tensors(const GemmInputs& given_inputs, TensorReader& reader, const EpilogueArguments& epilogue) {
  GemmInputs inputs = given_inputs;
  inputs.set<arg::Out>(epilogue.out_of_d());
  return {.a = reader.read<arg::A>(inputs),
          .b = reader.read<arg::B>(inputs),
          .c = reader.read<arg::C>(inputs),
          .bias = reader.read<arg::Bias>(inputs),
          .out = reader.read_output<arg::Out>(inputs),
          .scale_a = reader.read<arg::ScaleA>(inputs),
          .scale_b = reader.read<arg::ScaleB>(inputs),
          .scale_d = reader.read<arg::ScaleD>(inputs),
          .scale_out = reader.read_output<arg::ScaleOut>(inputs),
          .amax = reader.read_output<arg::Amax>(inputs),
          .azp = reader.read<arg::Azp>(inputs),
          .azp_adj = reader.read<arg::AzpAdj>(inputs),
          .scales = reader.read<arg::Scales>(inputs),
          .zeros = reader.read<arg::Zeros>(inputs),
          .global_scale = reader.read<arg::GlobalScale>(inputs),
          .offs = reader.read<arg::Offs>(inputs),
          .indptr = reader.read<arg::Indptr>(inputs),
          .starts = reader.read<arg::Starts>(inputs),
          .sizes = reader.read<arg::Sizes>(inputs),
          .counts = reader.read<arg::Counts>(inputs),
          .gather = reader.read<arg::Gather>(inputs),
          .epilogue = epilogue.read(reader)};
}

}  // namespace

void Result::allocate(nb::object ArrayType::* make, Shape shape, ProductCall& call, TensorReader& reader) {
  if (given(out_)) return;
  made_ = reader.make(make, leader_, shape, call.problem.d.dtype, call.problem.device, "`out`");
  call.arguments.d = reader.read(made_, "out").data;
}

nb::object Result::get() const {
  return made_.is_valid() ? finished(leader_, made_) : nb::borrow(out_);
}

void Results::allocate(nb::object ArrayType::* make, Shape shape, ProductCall& call, TensorReader& reader) {
  d_.allocate(make, shape, call, reader);
  for (uint32_t i = 0; i < epilogue_.outputs_beside_d(); ++i) {
    if ((call.outputs_to_make >> i & 1) == 0) continue;
    const OutputShape& output = call.output_shapes[i];
    // What has fewer dimensions than D, having been reduced, knows of no order of memory.
    const auto maker = output.ndim < int(shape.size()) ? &ArrayType::empty : make;
    made_[i] = reader.make(maker, d_.leader(), output.span(), call.problem.epilogue.outputs[i].dtype,
                           call.problem.device, "`out`");
    call.arguments.epilogue_outputs[i] = reader.read(made_[i], "out").data;
  }
}

nb::object Results::with_others(const nb::object& d) const {
  if (epilogue_.outputs_beside_d() == 0) return d;
  nb::object finished_outputs[kMostEpilogueOutputs];
  for (uint32_t i = 0; i < epilogue_.outputs_beside_d(); ++i)
    if (made_[i].is_valid()) finished_outputs[i] = finished(d_.leader(), made_[i]);
  return epilogue_.results(d, finished_outputs);
}

GemmOperands::GemmOperands(const GemmInputs& inputs, TensorReader& reader, const GemmOptions& options)
    : GemmOperands(inputs, reader, options, EpilogueArguments(inputs.get<arg::Epilogue>(), inputs.get<arg::Out>())) {}

GemmOperands::GemmOperands(const GemmInputs& inputs, TensorReader& reader, const GemmOptions& options,
                           EpilogueArguments epilogue)
    : GemmCall(make_call(read_tensors(inputs, reader, epilogue), options)),
      results_(inputs.get<arg::A>(), std::move(epilogue)),
      scale_out_(inputs.get<arg::ScaleOut>()),
      scale_major_(options.scale_major) {}

void GemmOperands::allocate(TensorReader& reader) {
  const auto shape = d_shape();
  results_.allocate(&ArrayType::empty, Shape(shape).subspan(batched ? 0 : 1), *this, reader);
  if (finds_scales(problem) && !given(scale_out_)) allocate_scales(reader);
}

void GemmOperands::allocate_scales(TensorReader& reader) {
  const auto [batch, rows, blocks] = scale_out_shape();
  const bool by_row = scale_major_ == Major::k;
  std::array shape{batch, by_row ? rows : blocks, by_row ? blocks : rows};
  if (stacks_rows() && !by_row) shape = {blocks, batch, rows};
  made_scales_ = reader.make(&ArrayType::empty, results_.d().leader(), Shape(shape).subspan(batched ? 0 : 1),
                             DType::f32, problem.device, "`out` and `scale_out`");
  arguments.scale_out = static_cast<float*>(reader.read(made_scales_, "the result").data);
}

nb::object GemmOperands::scales() const {
  if (!made_scales_.is_valid()) return nb::borrow(scale_out_);
  nb::object scales = finished(results_.d().leader(), made_scales_);
  if (scale_major_ == Major::k) return scales;
  if (stacks_rows()) scales = scales.attr("swapaxes")(0, 1);
  return batched ? scales.attr("swapaxes")(1, 2) : scales.attr("swapaxes")(0, 1);
}

nb::object GemmOperands::result() const {
  const nb::object made = results_.get();
  if (!finds_scales(problem)) return made;
  if (!PyTuple_Check(made.ptr())) return nb::make_tuple(made, scales());
  return made + nb::make_tuple(scales());
}

}  // namespace cleave::python

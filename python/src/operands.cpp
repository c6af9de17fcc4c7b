#include "operands.h"

#include "errors.h"
#include "values.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

GemmTensors read_tensors(const GemmInputs& inputs, TensorReader& reader) {
  return {.a = reader.read<arg::A>(inputs),
          .b = reader.read<arg::B>(inputs),
          .c = reader.read<arg::C>(inputs),
          .bias = reader.read<arg::Bias>(inputs),
          .out = reader.read_output<arg::Out>(inputs),
          .scale_a = reader.read<arg::ScaleA>(inputs),
          .scale_b = reader.read<arg::ScaleB>(inputs),
          .scale_d = reader.read<arg::ScaleD>(inputs),
          .amax = reader.read_output<arg::Amax>(inputs),
          .azp = reader.read<arg::Azp>(inputs),
          .azp_adj = reader.read<arg::AzpAdj>(inputs),
          .offs = reader.read<arg::Offs>(inputs),
          .indptr = reader.read<arg::Indptr>(inputs),
          .starts = reader.read<arg::Starts>(inputs),
          .sizes = reader.read<arg::Sizes>(inputs),
          .counts = reader.read<arg::Counts>(inputs)};
}

}  // namespace

void Result::allocate(nb::object ArrayType::* make, nb::handle shape, ProductCall& call, TensorReader& reader) {
  if (given(out_)) return;
  made_ = reader.make(make, leader_, shape, call.problem.d.dtype, call.problem.device, "`out`");
  call.arguments.d = reader.read(made_, "out").data;
}

nb::object Result::get() const {
  return made_.is_valid() ? finished(leader_, made_) : nb::borrow(out_);
}

GemmOperands::GemmOperands(const GemmInputs& inputs, TensorReader& reader, const GemmOptions& options)
    : GemmCall(make_call(read_tensors(inputs, reader), options)),
      result_(inputs.get<arg::A>(), inputs.get<arg::Out>()) {}

void GemmOperands::allocate(TensorReader& reader) {
  const auto [batch, rows, columns] = d_shape();
  result_.allocate(&ArrayType::empty, batched ? nb::make_tuple(batch, rows, columns) : nb::make_tuple(rows, columns),
                   *this, reader);
}

}  // namespace cleave::python

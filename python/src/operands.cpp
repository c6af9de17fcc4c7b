#include "operands.h"

#include "errors.h"
#include "values.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

template <class P>
Operand operand(const GemmInputs& inputs, TensorReader& reader) {
  return reader.read(inputs.get<P>(), P::name());
}

template <class P>
std::optional<Operand> given_operand(const GemmInputs& inputs, TensorReader& reader) {
  return reader.read_given(inputs.get<P>(), P::name());
}

template <class P>
std::optional<Operand> written_operand(const GemmInputs& inputs, TensorReader& reader) {
  return reader.read_written(inputs.get<P>(), P::name());
}

GemmTensors read_tensors(const GemmInputs& inputs, TensorReader& reader) {
  return {.a = operand<arg::A>(inputs, reader),
          .b = operand<arg::B>(inputs, reader),
          .c = given_operand<arg::C>(inputs, reader),
          .bias = given_operand<arg::Bias>(inputs, reader),
          .out = written_operand<arg::Out>(inputs, reader),
          .scale_a = given_operand<arg::ScaleA>(inputs, reader),
          .scale_b = given_operand<arg::ScaleB>(inputs, reader),
          .scale_d = given_operand<arg::ScaleD>(inputs, reader),
          .amax = written_operand<arg::Amax>(inputs, reader),
          .azp = given_operand<arg::Azp>(inputs, reader),
          .azp_adj = given_operand<arg::AzpAdj>(inputs, reader),
          .offs = given_operand<arg::Offs>(inputs, reader),
          .indptr = given_operand<arg::Indptr>(inputs, reader),
          .starts = given_operand<arg::Starts>(inputs, reader),
          .sizes = given_operand<arg::Sizes>(inputs, reader),
          .counts = given_operand<arg::Counts>(inputs, reader)};
}

}  // namespace

void Result::allocate(nb::object ArrayType::* make, nb::handle shape, ProductCall& call, TensorReader& reader) {
  if (given(out_)) return;
  if (((*array_type_of(leader_)).*make).is_none()) {
    refuse_value("the product of a {} needs `out`: only torch, NumPy, CuPy and JAX arrays can be made here",
                 class_name(leader_));
  }
  made_ = reader.make(make, leader_, shape, call.problem.d.dtype, call.problem.device);
  call.arguments.d = reader.read(made_, "out").data;
}

nb::object Result::get() const {
  if (!made_.is_valid()) return nb::borrow(out_);
  const nb::object finish = array_type_of(leader_)->finish;
  return finish.is_none() ? made_ : finish(made_);
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

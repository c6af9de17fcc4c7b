#include "operands.h"

#include "errors.h"
#include "values.h"

namespace nb = nanobind;

namespace cleave::python {

void Result::allocate(nb::object ArrayType::* make, nb::handle shape, ProductCall& call,
                      TensorReader& reader) {
  if (given(out_)) return;
  if (((*array_type_of(leader_)).*make).is_none()) {
    refuse_value(
        "the product of a {} needs `out`: only torch, NumPy, CuPy and JAX arrays can be made here",
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

GemmOperands::GemmOperands(const GemmInputs& inputs, TensorReader& reader,
                           const GemmOptions& options)
    : GemmCall(make_call({.a = reader.read(inputs.a, "a"),
                          .b = reader.read(inputs.b, "b"),
                          .c = reader.read_given(inputs.c, "c"),
                          .bias = reader.read_given(inputs.bias, "bias"),
                          .out = reader.read_written(inputs.out, "out"),
                          .scale_a = reader.read_given(inputs.scale_a, "scale_a"),
                          .scale_b = reader.read_given(inputs.scale_b, "scale_b"),
                          .scale_d = reader.read_given(inputs.scale_d, "scale_d"),
                          .amax = reader.read_written(inputs.amax, "amax"),
                          .azp = reader.read_given(inputs.azp, "azp"),
                          .azp_adj = reader.read_given(inputs.azp_adj, "azp_adj"),
                          .offs = reader.read_given(inputs.offs, "offs"),
                          .indptr = reader.read_given(inputs.indptr, "indptr"),
                          .starts = reader.read_given(inputs.starts, "starts"),
                          .sizes = reader.read_given(inputs.sizes, "sizes"),
                          .counts = reader.read_given(inputs.counts, "counts")},
                         options)),
      result_(inputs.a, inputs.out) {}

void GemmOperands::allocate(TensorReader& reader) {
  const auto [batch, rows, columns] = d_shape();
  result_.allocate(&ArrayType::empty,
                   batched ? nb::make_tuple(batch, rows, columns) : nb::make_tuple(rows, columns),
                   *this, reader);
}

}  // namespace cleave::python

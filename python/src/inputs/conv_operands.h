// From the Python arrays of a convolution to a GemmProblem and its pointers.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "inputs/conv_parameters.h"
#include "inputs/operands.h"

namespace cleave::python {

/// The arrays of one call; `convert` copies those in another memory order.
using ConvInputs = Values<arg::Input, arg::Weight, arg::GradOutput, arg::C, arg::Bias, arg::Out, arg::Epilogue,
                          arg::Convert, arg::ScaleA, arg::ScaleB, arg::ScaleD, arg::Amax>;

/// `others` and the operands, by their places in the product.
ConvInputs with_operands(Conv kind, nanobind::handle a, nanobind::handle b, ConvInputs others);

/// A convolution of arrays, valid as long as the reader that read them.
class ConvOperands : public ConvCall {
 public:
  /// Throws Error for anything that is wrong with the arrays, as cleave::make_call does.
  ConvOperands(const ConvInputs& inputs, TensorReader& reader, const ConvOptions& options);

  /// Creates D and a function's other outputs, channels last, if there is no `out`.
  void allocate(TensorReader& reader);

  /// To be called after the launch. Fills an `out` in another memory order first.
  nanobind::object result() const;

  /// True if the framework's current stream copies something.
  bool converted() const { return !copies_.empty() || staged_.is_valid(); }

 private:
  ConvOperands(const ConvInputs& inputs, TensorReader& reader, const ConvOptions& options, EpilogueArguments epilogue);

  ConvTensors read(const ConvInputs& inputs, TensorReader& reader, const ConvOptions& options);
  std::optional<Operand> read_out(TensorReader& reader, const ConvOptions& options);

  bool convert_ = false;
  std::vector<nanobind::object> copies_;
  nanobind::object staged_;  // what is computed in the place of `out`
  Results results_;
};

}  // namespace cleave::python

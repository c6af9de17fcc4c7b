// Epilogue functions from Python: cleave._core.EpilogueFunction, and what products take as `epilogue`.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "array/tensor.h"
#include "operands/gemm_operands.h"

namespace cleave::python {

/// The part of `out` that is D's: the first one of a tuple.
nanobind::handle first_output(nanobind::handle out);

/// The text of the backward of its own that an epilogue function has for torch's autograd; empty without.
std::string backward_of(nanobind::handle epilogue);

/// `epilogue` and `out` together, since `out` is a tuple if a function has several outputs.
class EpilogueArguments {
 public:
  /// Throws Error(invalid_type) for what is neither None nor a cleave.BoundEpilogue (of Python, so that torch.compile
  /// may see through it): a function, and a tuple of its inputs.
  EpilogueArguments(nanobind::handle epilogue, nanobind::handle out);

  bool given() const { return function_ != nullptr; }
  nanobind::handle out_of_d() const { return outs_[0]; }

  EpilogueTensors read(TensorReader& reader) const;

  /// The function, or the activation of this name, without operands.
  EpilogueProblem function_or(Activation activation) const;

  /// For a problem whose D is placed: inputs are types in place of arrays, which lie packed, one matrix for each of the
  /// batch and one line for all; outputs are of the function's types, or D's.
  void place_types(GemmProblem& problem) const;

  /// The operands of a call whose inputs are types in place of arrays: `make(shape, type)` makes an array's operand.
  template <class Make>
  EpilogueTensors read_types(const Make& make) const {
    EpilogueTensors tensors = empty_tensors();
    for (size_t i = 0; i < tensors.inputs.size(); ++i)
      if (const auto type = type_of_input(i)) tensors.inputs[i].tensor = make(shape_of_input(i), *type);
    return tensors;
  }

  /// The type that the function gives D, if any.
  std::optional<DType> type_of_d() const;

  /// The result, from D's array and those of other outputs.
  nanobind::object results(const nanobind::object& d, const nanobind::object* made) const;

  size_t outputs_beside_d() const;
  nanobind::handle input(size_t number) const { return PyTuple_GetItem(inputs_.ptr(), Py_ssize_t(number)); }
  nanobind::handle out(size_t beside_d) const { return outs_[1 + beside_d]; }

 private:
  /// With room for what the function takes and makes.
  EpilogueTensors empty_tensors() const;
  /// For inputs that are types in place of arrays: the type, or nothing for a number.
  std::optional<DType> type_of_input(size_t number) const;
  InputShape shape_of_input(size_t number) const;

  const EpilogueFunction* function_ = nullptr;
  nanobind::object inputs_;  // arrays, or numbers for scalars
  nanobind::handle outs_[1 + kMostEpilogueOutputs];
};

}  // namespace cleave::python

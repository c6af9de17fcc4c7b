// From Python arrays to a GemmProblem and its pointers.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "array/tensor.h"
#include "call/parameters.h"
#include "inputs/epilogue.h"
#include "operands/gemm_operands.h"

namespace cleave::python {

/// What the user gets: `out`, or a new array of a leader's framework and class, on its device.
class Result {
 public:
  Result(nanobind::handle leader, nanobind::handle out) : leader_(leader), out_(out) {}

  /// Creates it with one of the two functions of the leader's ArrayType, unless there is an `out`. Sets
  /// the call's pointer.
  void allocate(nanobind::object ArrayType::* make, Shape shape, ProductCall& call, TensorReader& reader);

  nanobind::object get() const;
  nanobind::handle leader() const { return leader_; }

 private:
  nanobind::handle leader_, out_;
  nanobind::object made_;
};

/// The same for D and the other outputs of an epilogue function.
class Results {
 public:
  Results(nanobind::handle leader, EpilogueArguments epilogue)
      : epilogue_(std::move(epilogue)), d_(leader, epilogue_.out_of_d()) {}

  const EpilogueArguments& epilogue() const { return epilogue_; }

  void allocate(nanobind::object ArrayType::* make, Shape shape, ProductCall& call, TensorReader& reader);

  nanobind::object get() const { return with_others(d_.get()); }
  /// The results with `d` as D.
  nanobind::object with_others(const nanobind::object& d) const;
  const Result& d() const { return d_; }

 private:
  EpilogueArguments epilogue_;
  Result d_;
  nanobind::object made_[kMostEpilogueOutputs];  // outputs beside D
};

/// A product of arrays, valid as long as the reader that read them.
class GemmOperands : public GemmCall {
 public:
  /// Throws Error for anything that is wrong with the arrays, as cleave::make_call does.
  GemmOperands(const GemmInputs& inputs, TensorReader& reader, const GemmOptions& options);

  /// Creates D, a function's other outputs, and D's scales, if there is no `out` or `scale_out`.
  void allocate(TensorReader& reader);

  /// D and a function's other outputs; then D's scales, if they are computed.
  nanobind::object result() const;

 private:
  void allocate_scales(TensorReader& reader);
  nanobind::object scales() const;

  GemmOperands(const GemmInputs& inputs, TensorReader& reader, const GemmOptions& options, EpilogueArguments epilogue);

  Results results_;
  nanobind::handle scale_out_;
  Major scale_major_;
  nanobind::object made_scales_;
};

}  // namespace cleave::python

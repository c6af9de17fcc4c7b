// From Python arrays to a GemmProblem and its pointers.
#pragma once

#include <nanobind/nanobind.h>

#include "cleave/gemm.h"
#include "tensor.h"

namespace cleave::python {

/// The arrays of one call, as Python handed them over; None where absent.
struct GemmInputs {
  nanobind::handle a, b, c, bias, out;
};

/// One product, ready to be planned: `problem` without the options that arrays do not determine.
class GemmOperands {
 public:
  /// `d_type` is used if there is no `out`; without it D has A's type. Throws Error for everything
  /// that is wrong with one array or with how they fit together; shared memory is for GemmPlan::run
  /// to refuse.
  GemmOperands(const GemmInputs& inputs, TensorReader& reader, const DType* d_type);

  GemmProblem problem;
  GemmArguments arguments;

  /// Makes D where there is no `out`, as an array of A's framework and class beside A.
  void allocate(TensorReader& reader);

  /// What the user gets: `out`, or the array that `allocate` made.
  nanobind::object result() const;

 private:
  void read_matrices(TensorReader& reader);
  void place_c(TensorReader& reader);
  void place_bias(TensorReader& reader);
  void place_d(TensorReader& reader, const DType* d_type);
  TensorView read(nanobind::handle array, const char* name, TensorReader& reader, int min_rank,
                  int max_rank, DType& dtype);

  GemmInputs inputs_;
  bool batched_ = false;   // D has three dimensions
  nanobind::object made_;  // by `allocate`
  TensorView a_, b_, c_, bias_, d_;
};

}  // namespace cleave::python

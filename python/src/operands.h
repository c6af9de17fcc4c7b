// From Python arrays to a GemmProblem and its pointers.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "operands/gemm_operands.h"
#include "tensor.h"

namespace cleave::python {

/// The arrays of one call, as Python handed them over; None or null where absent.
struct GemmInputs {
  nanobind::handle a, b, c, bias, out;
  nanobind::handle scale_a, scale_b, scale_d, amax, azp, azp_adj;
  nanobind::handle offs, indptr, starts, sizes, counts;
};

/// A product of arrays, good as long as the reader that read them.
class GemmOperands : public GemmCall {
 public:
  /// Throws Error for everything that is wrong with the arrays, as cleave::make_call does.
  GemmOperands(const GemmInputs& inputs, TensorReader& reader, const GemmOptions& options);

  /// Makes D where there is no `out`, as an array of A's framework and class beside A.
  void allocate(TensorReader& reader);

  /// What the user gets: `out`, or the array that `allocate` made.
  nanobind::object result() const;

 private:
  nanobind::handle a_, out_;
  nanobind::object made_;  // by `allocate`
};

}  // namespace cleave::python

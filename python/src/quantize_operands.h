// From Python arrays to a QuantizeProblem and its pointers.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "operands/quantize_operands.h"
#include "tensor.h"

namespace cleave::python {

/// The arguments of one call, as Python handed them over; None where absent.
struct QuantizeInputs {
  nanobind::handle x, dtype, granularity, scale, zero, smooth, symmetric, transpose, offs, out,
      scale_out, scale_major;
};

/// One matrix to quantise, good as long as the reader that read it.
class QuantizeOperands : public QuantizeCall {
 public:
  /// Throws Error for everything that is wrong with one argument or with how they fit together;
  /// shared memory is for QuantizePlan::run to refuse.
  QuantizeOperands(const QuantizeInputs& inputs, TensorReader& reader);

  /// Makes what is not given, as arrays of x's framework and class beside x.
  void allocate(TensorReader& reader);

  /// What the user gets: q, its scale, and the zero points, the transpose and where its groups end
  /// if there are any.
  nanobind::tuple results() const;

 private:
  struct Result {
    nanobind::object array;
    bool made = false;
    bool turned = false;  // the user gets the transpose of what was made
  };

  void* make(nanobind::tuple shape, DType dtype, bool turned, TensorReader& reader);

  QuantizeInputs inputs_;
  Major scale_major_;
  std::vector<Result> results_;
};

}  // namespace cleave::python

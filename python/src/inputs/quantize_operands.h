// From Python arrays to a QuantizeProblem and its pointers.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "array/tensor.h"
#include "call/parameters.h"
#include "operands/quantize_operands.h"

namespace cleave::python {

namespace arg {

using X = Array<"x">;
using QuantizedDtype = Dtype<"dtype", "'int8'">;
using Granularity = OneOf<"granularity", cleave::Granularity, "'row'">;
using Scale = MaybeArray<"scale">;
using Zero = MaybeArray<"zero">;
using Smooth = MaybeArray<"smooth">;
using QuantizedNorm = Other<"norm", "cleave.Norm | None", "None">;
using Residual = MaybeArray<"residual">;
using ResidualOut = MaybeArray<"residual_out">;
using NormedOut = MaybeArray<"normed_out">;
using Symmetric = Flag<"symmetric", "True">;
using Transpose = Flag<"transpose", "False">;

}  // namespace arg

using QuantizeInputs = Values<arg::X, arg::QuantizedDtype, arg::Granularity, arg::Scale, arg::Zero, arg::Smooth,
                              arg::QuantizedNorm, arg::Residual, arg::ResidualOut, arg::NormedOut, arg::Symmetric,
                              arg::Transpose, arg::Offs, arg::Out, arg::ScaleOut, arg::ScaleMajor, arg::UseUe8m0>;

/// A matrix to quantise, valid as long as the reader that read it.
class QuantizeOperands : public QuantizeCall {
 public:
  /// Throws Error for anything that is wrong with one argument or with how they fit together;
  /// overlapping memory is refused by QuantizePlan::run.
  QuantizeOperands(const QuantizeInputs& inputs, TensorReader& reader);

  /// Creates the outputs that are not given, as arrays of x's framework and class on x's device.
  void allocate(TensorReader& reader);

  /// What the user gets: q, its scale, and the zero points, the transpose and where its groups end, the sums with the
  /// residual and the norms if there are any.
  nanobind::tuple results() const;

 private:
  struct Result {
    nanobind::object array;
    bool made = false;
    bool turned = false;  // the user gets the transpose of what was made
  };

  void* make(Shape shape, DType dtype, bool turned, TensorReader& reader);

  QuantizeInputs inputs_;
  Major scale_major_ = Major::k;
  std::vector<Result> results_;
};

}  // namespace cleave::python

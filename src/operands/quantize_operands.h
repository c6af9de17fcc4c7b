// From the tensors of a call to a QuantizeProblem and its pointers: what every front end shares.
#pragma once

#include <optional>

#include "cleave/quantize.h"
#include "operands/operand.h"

namespace cleave {

/// Absent ones are empty.
struct QuantizeTensors {
  std::optional<Operand> x;               ///< never absent
  std::optional<Operand> q, scale, zero;  ///< to write to; with given_scale the latter two are read
  std::optional<Operand> smooth;
  std::optional<Operand> weight, bias;  ///< of the norm
  std::optional<Operand> residual, residual_out, normed;
  std::optional<Operand> offs;  ///< where groups of x's rows end
};

/// What tensors do not determine.
struct QuantizeOptions {
  Granularity granularity = Granularity::row;
  Major scale_major = Major::k;  ///< mn: new scales of blocks are stored column by column
  std::optional<DType> dtype;    ///< of q; needed without one
  bool given_scale = false;
  bool symmetric = true;
  bool ue8m0 = false;
  Norm norm = Norm::none;
  float eps = 0.0f;
  bool zero_centered = false;
  bool transpose = false;  ///< the transpose is made too, like what is absent
};

struct QuantizeCall {
  QuantizeProblem problem;
  QuantizeArguments arguments;  ///< without those of the absent
};

/// Throws Error for everything that is wrong with one tensor or with how they fit together. What is
/// absent and will be written is packed.
QuantizeCall make_call(const QuantizeTensors& tensors, const QuantizeOptions& options);

}  // namespace cleave

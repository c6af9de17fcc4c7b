// From the tensors of a packed weight to a problem's B.
#pragma once

#include "cleave/gemm.h"
#include "operands/operand.h"

namespace cleave {

struct GemmTensors;

/// What a packed weight's tensors do not determine.
struct WeightForm {
  WeightFormat format = WeightFormat::int4;
  int64_t out_features = 0;  ///< rows of the weight, N
  int64_t group_size = 0;    ///< elements of K that share a scale
};

/// [K, N], or with a batch, of A's type, as which the packed weight is multiplied. Throws Error unless its shape is
/// that of the blocks.
Operand unpacked(const Operand& packed, const WeightForm& form, const Operand& a);

/// Says what the weight is that `problem` has as B, placed, with the tensors' scales, zero points and global scale.
/// Throws Error for what does not fit.
void place_weights(const GemmTensors& tensors, const WeightForm& form, GemmProblem& problem, GemmArguments& arguments);

}  // namespace cleave

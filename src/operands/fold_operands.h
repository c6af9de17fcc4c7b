// From the tensors of a call to a FoldProblem and its pointers.
#pragma once

#include <optional>
#include <vector>

#include "cleave/fold.h"
#include "operands/operand.h"

namespace cleave {

struct FoldTensors {
  std::vector<Operand> partials;  ///< [rows, columns] of each rank
  std::optional<Operand> scale_a, scale_b, bias, c, scale_d, scale_out;
  Operand d;
};

struct FoldCall {
  FoldProblem problem;
  FoldArguments arguments;  ///< without a group
};

/// `most_rows`: of any rank. `ue8m0`: of a scale_out. Throws Error for everything that is wrong with one tensor or with
/// how they fit together.
FoldCall make_call(const FoldTensors& tensors, Activation activation, int64_t most_rows, bool ue8m0 = false);

}  // namespace cleave

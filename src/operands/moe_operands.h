// From the tensors of a call to a MoeProblem and its pointers: what every front end shares.
#pragma once

#include <optional>

#include "cleave/core/math.h"
#include "cleave/moe.h"
#include "operands/operand.h"

namespace cleave {

/// Absent ones are empty: an operation has those that its problem reads.
struct MoeTensors {
  std::optional<Operand> ids, indices, tokens, rows, weights;
};

/// What tensors do not determine.
struct MoeOptions {
  MoeOperation operation = MoeOperation::offsets;
  std::optional<int64_t> experts;  ///< where ids are read
  std::optional<int64_t> top_k;    ///< combine, where there are no weights to say it
  std::optional<DType> out_dtype;  ///< permute, gather: of 8 bits, which rows are quantised to
};

struct MoeCall {
  MoeProblem problem;
  MoeArguments arguments;  ///< without what will be written, which is packed

  int64_t slots() const { return problem.tokens * problem.top_k; }
  int64_t scales() const { return ceil_div(problem.columns, int64_t(kScaleBlock)); }  ///< of a scaled row
};

/// Throws Error for everything that is wrong with one tensor or with how they fit together.
MoeCall make_call(const MoeTensors& tensors, const MoeOptions& options);

}  // namespace cleave

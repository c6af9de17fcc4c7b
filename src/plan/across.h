// Products of which several ranks have a part of K each, and which add up themselves what all of them have
// (kernels/cleave/split_k/across.h).
#pragma once

#include <memory>

#include "cleave/gemm.h"

namespace cleave {

/// `product`: this rank's, with the epilogue of the whole sum. Each rank's is rounded to `partial` before it is added.
struct AcrossProblem {
  GemmProblem product;
  int64_t ranks = 2;
  DType partial = DType::bf16;

  friend bool operator==(const AcrossProblem&, const AcrossProblem&) = default;
};

/// A plan whose arguments have a group; nullptr where no kernel makes the sum so, or not with the bits of the product
/// and the fold behind it. Which ranks have one is nobody's business but theirs: a fold `in_strips` sends the same.
CLEAVE_TOOLS std::shared_ptr<const GemmPlan> plan_across(const AcrossProblem& problem);

/// After measurements.
void forget_plans_across();

}  // namespace cleave

// Reductions of D by an epilogue function in a step of their own: the product leaves what is reduced as a matrix of
// float32 in the workspace, and a second kernel adds up its lines, in an order that follows from D's shape alone. For
// what tiles do not serve: the promise that a row depends on itself alone, which partial results of tiles would break,
// and data gradients of several launches.
#pragma once

#include "plan/plans/gpu_plan.h"

namespace cleave {

/// Whether the problem's reductions are found so.
bool stages_reductions(const GemmProblem& problem);

/// The product, whose reduced outputs are matrices; where those lie is settled when it runs.
GemmProblem staged(const GemmProblem& problem);

/// `product`: the plan of staged(problem).
std::shared_ptr<const ChosenPlan> make_staged_plan(const GemmProblem& problem,
                                                   std::shared_ptr<const ChosenPlan> product);

}  // namespace cleave

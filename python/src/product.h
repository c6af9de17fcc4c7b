// What the products have in common: everything but their arguments' names.
#pragma once

#include "parameters.h"
#include "plan_cache.h"
#include "plan_object.h"

namespace cleave::python {

PlanOptions parse_plan_options(const ProductArguments& arguments);

/// The plan of a problem, made without the GIL.
std::shared_ptr<const GemmPlan> make_plan(const GemmProblem& problem);

/// Plans, or finds the plan that did the same before, and runs. Returns D. `Operands`: a ProductCall
/// with `allocate` and `result`, as GemmOperands is.
template <class Operands>
nanobind::object plan_and_run(Operands& operands, const CallArguments& call, TensorReader& reader) {
  PlanCache& cache = PlanCache::shared();
  std::shared_ptr<const GemmPlan> plan = cache.find(operands.problem);
  const bool known = plan != nullptr;
  if (!known) plan = make_plan(operands.problem);
  operands.allocate(reader);
  launch(*plan, operands, call, reader);
  if (!known) cache.insert(operands.problem, std::move(plan));
  return operands.result();
}

/// Reads matrices, plans and runs. Returns D. `form`: what the operation is, apart from its arguments.
nanobind::object multiply(const GemmInputs& inputs, const ProductArguments& arguments, const CallArguments& call,
                          const GemmOptions& form = {});

PlanObject plan_product(const GemmInputs& inputs, const ProductArguments& arguments, const GemmOptions& form = {});

}  // namespace cleave::python

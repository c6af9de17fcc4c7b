// What all products share: everything but the names of their parameters.
#pragma once

#include "call/parameters.h"
#include "plans/plan_cache.h"
#include "plans/plan_object.h"

namespace cleave::python {

/// Plans (or finds the plan of an equal problem) and runs. Returns D. `Operands`: a ProductCall with
/// `allocate` and `result`, such as GemmOperands.
template <class Operands>
nanobind::object plan_and_run(Operands& operands, const CallArguments& call, TensorReader& reader) {
  const auto plan = RecentPlans<GemmProblem>::shared().get(operands.problem);
  operands.allocate(reader);
  launch(*plan, operands, call, reader);
  return operands.result();
}

/// Reads matrices, plans and runs. Returns D. `form`: the options that follow from the operation itself.
nanobind::object multiply(const GemmInputs& inputs, const ProductArguments& arguments, const CallArguments& call,
                          const GemmOptions& form = {});

PlanObject plan_product(const GemmInputs& inputs, const ProductArguments& arguments, const GemmOptions& form = {});

}  // namespace cleave::python

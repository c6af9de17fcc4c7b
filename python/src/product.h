// What the products have in common: everything but their arguments' names.
#pragma once

#include "plan_cache.h"
#include "plan_object.h"

namespace cleave::python {

/// The arguments that choose a kernel; null where the caller has none.
struct PlanOptions {
  nanobind::handle activation, out_dtype, split_k_mode, split_k_slices, deterministic, kernel,
      precision;
  nanobind::handle use_fast_accum, alignment, zero_rest;
  bool grouped = false, a_is_transposed = false;  // as in GemmOptions
};

/// Sets what no array determines.
void set_plan_options(const PlanOptions& options, GemmProblem& problem);

/// The plan of a problem, made without the GIL.
std::shared_ptr<const GemmPlan> make_plan(const GemmProblem& problem);

/// Plans, or finds the plan that did the same before, and runs. Returns D. `Operands`: a ProductCall
/// with `allocate` and `result`, as GemmOperands is.
template <class Operands>
nanobind::object plan_and_run(Operands& operands, const LaunchOptions& launch_options,
                              TensorReader& reader) {
  PlanCache& cache = PlanCache::shared();
  std::shared_ptr<const GemmPlan> plan = cache.find(operands.problem);
  const bool known = plan != nullptr;
  if (!known) plan = make_plan(operands.problem);
  operands.allocate(reader);
  launch(*plan, operands, launch_options, reader);
  if (!known) cache.insert(operands.problem, std::move(plan));
  return operands.result();
}

/// Reads matrices, plans and runs. Returns D.
nanobind::object multiply(const GemmInputs& inputs, const PlanOptions& options,
                          const LaunchOptions& launch_options);

PlanObject plan_product(const GemmInputs& inputs, const PlanOptions& options);

}  // namespace cleave::python

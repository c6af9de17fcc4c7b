#include "product.h"

#include "plan_cache.h"
#include "values.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

GemmOperands make_operands(const GemmInputs& inputs, const PlanOptions& options,
                           TensorReader& reader) {
  std::optional<DType> d_type;
  if (!options.out_dtype.is_none()) d_type = parse_dtype(options.out_dtype, "out_dtype");
  GemmOperands operands(inputs, reader, d_type);
  GemmProblem& problem = operands.problem;
  problem.activation = parse_activation(options.activation);
  problem.split_k_mode = parse_split_k_mode(options.split_k_mode);
  problem.split_k_slices = parse_split_k_slices(options.split_k_slices);
  problem.deterministic = parse_flag(options.deterministic, "deterministic");
  problem.kernel = parse_kernel(options.kernel);
  if (options.use_fast_accum.is_valid()) {
    problem.fast_accumulation = parse_flag(options.use_fast_accum, "use_fast_accum");
  }
  return operands;
}

std::shared_ptr<const GemmPlan> make_plan(const GemmProblem& problem) {
  nb::gil_scoped_release unlocked;
  return plan(problem);
}

}  // namespace

nb::object multiply(const GemmInputs& inputs, const PlanOptions& options,
                    const LaunchOptions& launch_options) {
  TensorReader reader(launch_options.stream);
  GemmOperands operands = make_operands(inputs, options, reader);
  set_scalars(launch_options, operands);

  PlanCache& cache = PlanCache::shared();
  std::shared_ptr<const GemmPlan> plan = cache.find(operands.problem);
  const bool warm = plan != nullptr;
  if (!warm) plan = make_plan(operands.problem);
  operands.allocate(reader);
  launch(*plan, operands, launch_options, reader, warm);
  if (!warm) cache.insert(operands.problem, std::move(plan));
  return operands.result();
}

PlanObject plan_product(const GemmInputs& inputs, const PlanOptions& options) {
  TensorReader reader{nb::none()};
  const GemmOperands operands = make_operands(inputs, options, reader);
  return PlanObject(operands.problem, make_plan(operands.problem));
}

}  // namespace cleave::python

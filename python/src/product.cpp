#include "product.h"

#include "check_offsets.h"
#include "unlocked.h"
#include "values.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

GemmOptions parse_options(const PlanOptions& options) {
  GemmOptions form{.grouped = options.grouped, .a_is_transposed = options.a_is_transposed};
  if (options.activation.is_valid()) form.activation = parse_activation(options.activation);
  if (!options.out_dtype.is_none()) form.d_type = parse_dtype(options.out_dtype, "out_dtype");
  if (given(options.alignment)) {
    form.alignment = parse_integer(options.alignment, "alignment", "an integer or None");
  }
  if (given(options.zero_rest)) form.zero_rest = parse_flag(options.zero_rest, "zero_rest");
  return form;
}

GemmOperands make_operands(const GemmInputs& inputs, const PlanOptions& options,
                           const GemmOptions& form, TensorReader& reader) {
  GemmOperands operands(inputs, reader, form);
  set_plan_options(options, operands.problem);
  return operands;
}

}  // namespace

void set_plan_options(const PlanOptions& options, GemmProblem& problem) {
  problem.split_k_mode = parse_split_k_mode(options.split_k_mode);
  problem.split_k_slices = parse_split_k_slices(options.split_k_slices);
  problem.deterministic = parse_flag(options.deterministic, "deterministic");
  problem.kernel = parse_kernel(options.kernel);
  if (options.precision.is_valid()) problem.precision = parse_precision(options.precision);
  if (options.use_fast_accum.is_valid()) {
    problem.fast_accumulation = parse_flag(options.use_fast_accum, "use_fast_accum");
  }
}

std::shared_ptr<const GemmPlan> make_plan(const GemmProblem& problem) {
  const Unlocked unlocked;
  return plan(problem);
}

nb::object multiply(const GemmInputs& inputs, const PlanOptions& options,
                    const LaunchOptions& launch_options) {
  TensorReader reader(launch_options.stream);
  GemmOperands operands = make_operands(inputs, options, parse_options(options), reader);
  set_scalars(launch_options, operands);
  if (launch_options.check_offsets) check_offsets(operands, reader.stream());
  return plan_and_run(operands, launch_options, reader);
}

PlanObject plan_product(const GemmInputs& inputs, const PlanOptions& options) {
  TensorReader reader{nb::none()};
  GemmOptions form = parse_options(options);
  const GemmOperands operands = make_operands(inputs, options, form, reader);
  if (form.grouped) form.zero_rest = operands.problem.groups.zero_rest;
  return PlanObject(operands.problem, form, make_plan(operands.problem));
}

}  // namespace cleave::python

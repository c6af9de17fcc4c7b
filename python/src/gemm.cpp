#include "bindings.h"

#include <nanobind/typing.h>

#include "docs.h"
#include "launch.h"
#include "plan_cache.h"
#include "plan_object.h"
#include "values.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

/// The arguments that choose a kernel.
struct PlanOptions {
  nb::handle activation, out_dtype, split_k_mode, split_k_slices, deterministic, kernel;
};

GemmOperands make_operands(const GemmInputs& inputs, const PlanOptions& options,
                           TensorReader& reader) {
  std::optional<DType> d_type;
  if (!options.out_dtype.is_none()) d_type = parse_dtype(options.out_dtype, "out_dtype");
  GemmOperands operands(inputs, reader, d_type ? &*d_type : nullptr);
  GemmProblem& problem = operands.problem;
  problem.activation = parse_activation(options.activation);
  problem.split_k_mode = parse_split_k_mode(options.split_k_mode);
  problem.split_k_slices = parse_split_k_slices(options.split_k_slices);
  problem.deterministic = parse_deterministic(options.deterministic);
  problem.kernel = parse_kernel(options.kernel);
  return operands;
}

std::shared_ptr<const GemmPlan> make_plan(const GemmProblem& problem) {
  nb::gil_scoped_release unlocked;
  return plan(problem);
}

nb::object gemm(nb::handle a, nb::handle b, nb::handle c, nb::handle alpha, nb::handle beta,
                nb::handle bias, nb::handle activation, nb::handle out, nb::handle out_dtype,
                nb::handle split_k_mode, nb::handle split_k_slices, nb::handle deterministic,
                nb::handle kernel, nb::handle stream, nb::handle workspace) {
  const LaunchOptions launch_options{alpha, beta, stream, workspace};
  TensorReader reader(stream);
  GemmOperands operands = make_operands(
      {a, b, c, bias, out},
      {activation, out_dtype, split_k_mode, split_k_slices, deterministic, kernel}, reader);
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

PlanObject plan_gemm(nb::handle a, nb::handle b, nb::handle c, nb::handle bias,
                     nb::handle activation, nb::handle out, nb::handle out_dtype,
                     nb::handle split_k_mode, nb::handle split_k_slices, nb::handle deterministic,
                     nb::handle kernel) {
  TensorReader reader{nb::none()};
  const GemmOperands operands = make_operands(
      {a, b, c, bias, out},
      {activation, out_dtype, split_k_mode, split_k_slices, deterministic, kernel}, reader);
  return PlanObject(operands.problem, make_plan(operands.problem));
}

}  // namespace

void bind_gemm(nb::module_& m) {
  m.attr("Array") = nb::type_var("Array");

  m.def("gemm", &gemm, "a"_a.none(), "b"_a.none(), nb::kw_only(), "c"_a = nb::none(),
        "alpha"_a.none() = 1.0, "beta"_a = nb::none(), "bias"_a = nb::none(),
        "activation"_a.none() = "none", "out"_a = nb::none(), "out_dtype"_a = nb::none(),
        "split_k_mode"_a.none() = "auto", "split_k_slices"_a = nb::none(),
        "deterministic"_a.none() = true, "kernel"_a.none() = "auto", "stream"_a = nb::none(),
        "workspace"_a = nb::none(), kGemmDoc, nb::sig(kGemmSignature));

  m.def("plan_gemm", &plan_gemm, "a"_a.none(), "b"_a.none(), nb::kw_only(), "c"_a = nb::none(),
        "bias"_a = nb::none(), "activation"_a.none() = "none", "out"_a = nb::none(),
        "out_dtype"_a = nb::none(), "split_k_mode"_a.none() = "auto",
        "split_k_slices"_a = nb::none(), "deterministic"_a.none() = true,
        "kernel"_a.none() = "auto", kPlanGemmDoc, nb::sig(kPlanGemmSignature));
}

}  // namespace cleave::python

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "define.h"
#include "docs.h"
#include "launch.h"
#include "plan_cache.h"
#include "quantize/row_range.h"
#include "quantize_operands.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

nb::tuple quantize(const QuantizeInputs& inputs, nb::handle stream) {
  TensorReader reader(stream);
  QuantizeOperands operands(inputs, reader);
  const auto plan = RecentPlans<QuantizeProblem>::shared().get(operands.problem);
  operands.allocate(reader);
  {
    const nb::gil_scoped_release unlocked;
    plan->run(operands.arguments, reader.stream());
  }
  reader.mark_written();
  return operands.results();
}

/// cleave.QuantizePlan.
struct PlanHandle {
  std::shared_ptr<const QuantizePlan> plan;
};

PlanHandle plan_quantize(const QuantizeInputs& inputs) {
  TensorReader reader{nb::none()};
  const QuantizeOperands operands(inputs, reader);
  return {make_plan(operands.problem)};
}

std::vector<PlanHandle> prepare_quantize_rows(const PlanHandle& planned, int64_t first, int64_t last) {
  std::vector<PlanHandle> plans;
  for (auto& plan : plans_of_rows(planned.plan->problem(), first, last)) plans.push_back({std::move(plan)});
  return plans;
}

}  // namespace

void bind_quantize(nb::module_& m) {
  nb::class_<PlanHandle>(m, "QuantizePlan", kQuantizePlanDoc)
      .def(
          "prepare", [](const PlanHandle& self, nb::handle stream) { prepare(*self.plan, stream); },
          "stream"_a = nb::none(), kPrepareDoc)
      .def_prop_ro(
          "kernel_name", [](const PlanHandle& self) { return self.plan->kernel_name(); },
          "The kernels, in the order of their launches, with blocks and threads.")
      .def_prop_ro(
          "kernel_source", [](const PlanHandle& self) { return self.plan->kernel_source(); },
          "The source text that is compiled; empty for the CPU backend.")
      .def_prop_ro(
          "kernel_sources", [](const PlanHandle& self) { return self.plan->kernel_sources(); }, kKernelSourcesDoc)
      .def_prop_ro(
          "kernel_arch", [](const PlanHandle& self) { return arch_of(self.plan->problem().device); }, kKernelArchDoc)
      .def("__repr__", [](const PlanHandle& self) { return "<cleave.QuantizePlan " + self.plan->kernel_name() + ">"; });

  m.def("prepare_quantize_rows", &prepare_quantize_rows, "planned"_a, "first"_a, "last"_a,
        "Plans, which are to be prepared, with all kernels that the plan's problem runs with every number of rows of a "
        "range.");

  using Positional = List<arg::X, arg::QuantizedDtype, arg::Granularity>;
  using Options = List<arg::Scale, arg::Zero, arg::Smooth, arg::QuantizedNorm, arg::Residual, arg::ResidualOut,
                       arg::NormedOut, arg::Symmetric, arg::Transpose, arg::Offs, arg::Out, arg::ScaleOut,
                       arg::ScaleMajor, arg::UseUe8m0, arg::Stream>;
  define(m, "quantize", Positional(), Options(), "tuple[Array, ...]", kQuantizeDoc,
         [](const auto& call) { return quantize(call, call.template get<arg::Stream>()); });
  define(m, "plan_quantize", Positional(), Without<Options, List<arg::Stream>>(), "QuantizePlan", kPlanQuantizeDoc,
         [](const auto& call) { return plan_quantize(call); });
}

}  // namespace cleave::python

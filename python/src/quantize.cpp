#include <nanobind/stl/string.h>

#include "bindings.h"
#include "docs.h"
#include "plan_cache.h"
#include "quantize_operands.h"
#include "stream.h"
#include "unlocked.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

using QuantizePlans = RecentPlans<QuantizeProblem, QuantizePlan>;

std::shared_ptr<const QuantizePlan> make_plan(const QuantizeProblem& problem) {
  const Unlocked unlocked;
  return plan(problem);
}

nb::tuple quantize(nb::handle x, nb::handle dtype, nb::handle granularity, nb::handle scale,
                   nb::handle zero, nb::handle smooth, nb::handle symmetric, nb::handle transpose,
                   nb::handle offs, nb::handle out, nb::handle scale_out, nb::handle scale_major,
                   nb::handle stream) {
  TensorReader reader(stream);
  QuantizeOperands operands({x, dtype, granularity, scale, zero, smooth, symmetric, transpose, offs,
                             out, scale_out, scale_major},
                            reader);
  QuantizePlans& plans = QuantizePlans::shared();
  std::shared_ptr<const QuantizePlan> plan = plans.find(operands.problem);
  const bool known = plan != nullptr;
  if (!known) plan = make_plan(operands.problem);
  operands.allocate(reader);
  {
    const Unlocked unlocked;
    plan->run(operands.arguments, reader.stream());
  }
  reader.mark_written();
  if (!known) plans.insert(operands.problem, std::move(plan));
  return operands.results();
}

/// cleave.QuantizePlan.
struct PlanHandle {
  std::shared_ptr<const QuantizePlan> plan;
};

PlanHandle plan_quantize(nb::handle x, nb::handle dtype, nb::handle granularity, nb::handle scale,
                         nb::handle zero, nb::handle smooth, nb::handle symmetric,
                         nb::handle transpose, nb::handle offs, nb::handle out,
                         nb::handle scale_out, nb::handle scale_major) {
  TensorReader reader{nb::none()};
  const QuantizeOperands operands({x, dtype, granularity, scale, zero, smooth, symmetric, transpose,
                                   offs, out, scale_out, scale_major},
                                  reader);
  return {make_plan(operands.problem)};
}

void prepare(const PlanHandle& self, nb::handle stream) {
  void* handle = parse_stream(stream).value_or(nullptr);
  const Unlocked unlocked;
  self.plan->prepare(handle);
}

}  // namespace

void bind_quantize(nb::module_& m) {
  nb::class_<PlanHandle>(m, "QuantizePlan", kQuantizePlanDoc)
      .def("prepare", &prepare, "stream"_a = nb::none(), kPrepareQuantizeDoc,
           nb::sig("def prepare(self, stream: object = None) -> None"))
      .def_prop_ro(
          "kernel_name", [](const PlanHandle& self) { return self.plan->kernel_name(); },
          "The kernels, in the order of their launches, with blocks and threads.")
      .def_prop_ro(
          "kernel_source", [](const PlanHandle& self) { return self.plan->kernel_source(); },
          "The source text that is compiled; empty for the CPU backend.")
      .def("__repr__", [](const PlanHandle& self) {
        return "<cleave.QuantizePlan " + self.plan->kernel_name() + ">";
      });

  m.def("quantize", &quantize, "x"_a.none(), "dtype"_a.none() = "int8",
        "granularity"_a.none() = "row", nb::kw_only(), "scale"_a = nb::none(),
        "zero"_a = nb::none(), "smooth"_a = nb::none(), "symmetric"_a.none() = true,
        "transpose"_a.none() = false, "offs"_a = nb::none(), "out"_a = nb::none(),
        "scale_out"_a = nb::none(), "scale_major"_a.none() = "k", "stream"_a = nb::none(),
        kQuantizeDoc, nb::sig(kQuantizeSignature));

  m.def("plan_quantize", &plan_quantize, "x"_a.none(), "dtype"_a.none() = "int8",
        "granularity"_a.none() = "row", nb::kw_only(), "scale"_a = nb::none(),
        "zero"_a = nb::none(), "smooth"_a = nb::none(), "symmetric"_a.none() = true,
        "transpose"_a.none() = false, "offs"_a = nb::none(), "out"_a = nb::none(),
        "scale_out"_a = nb::none(), "scale_major"_a.none() = "k", kPlanQuantizeDoc,
        nb::sig(kPlanQuantizeSignature));
}

}  // namespace cleave::python

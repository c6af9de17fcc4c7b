// What `cleave tune` and the benchmark need beyond the public functions.
#include <nanobind/stl/string.h>

#include <chrono>

#include "bindings.h"
#include "define.h"
#include "errors.h"
#include "launch.h"
#include "plan/make_plan.h"
#include "plan_cache.h"
#include "plan_object.h"
#include "unlocked.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

PlanObject plan_candidate(const PlanObject& planned, size_t index) {
  const std::vector<Candidate> candidates = planned.plan().candidates();
  if (index >= candidates.size()) {
    refuse_value("index is {}, but the plan has {} candidates", index, candidates.size());
  }
  const std::optional<Spec> spec = parse_spec(candidates[index].kernel);
  if (!spec) refuse_value("\"{}\" cannot be planned by name; only plans for a GPU can", candidates[index].kernel);
  const Unlocked unlocked;
  return PlanObject(planned.problem(), planned.options(), plan_as(planned.problem(), *spec));
}

std::string tune_store(const PlanObject& plan) {
  RecentPlans<GemmProblem>::shared().clear();  // what is planned from now on may be planned better
  return remember(plan.plan());
}

/// Microseconds per call of the C++ plan, which GemmPlan.run adds the reading of Python's arguments
/// to.
double host_bench(const PlanObject& self, const GemmInputs& inputs, nb::handle stream, int64_t calls) {
  TensorReader reader(stream);
  const GemmArguments arguments = self.read(inputs, reader);
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; ++i) self.plan().run(arguments, reader.stream());
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / double(calls);
}

}  // namespace

void bind_tuning(nb::module_& m) {
  m.def("plan_candidate", &plan_candidate, "planned"_a, "index"_a, "The plan that runs as `planned.candidates[index]`.",
        nb::sig("def plan_candidate(planned: GemmPlan, index: int) -> GemmPlan"));
  m.def("tune_store", &tune_store, "plan"_a,
        "Makes the plan's choice the automatic one for its problem. Returns the tuning file.",
        nb::sig("def tune_store(plan: GemmPlan) -> str"));
  using Plan = Other<"plan", "GemmPlan">;
  using Calls = Integer<"calls">;
  define(m, "host_bench",
         List<Plan, arg::A, arg::B, Required<arg::Out>, Calls, Required<arg::Stream>, arg::ScaleA, arg::ScaleB,
              arg::Offs>(),
         List<>(), "float", "Microseconds of host time per launch from C++.", [](const auto& call) {
           return host_bench(nb::cast<const PlanObject&>(call.template get<Plan>()), call,
                             call.template get<arg::Stream>(), Calls::parse(call.template get<Calls>()));
         });
}

}  // namespace cleave::python

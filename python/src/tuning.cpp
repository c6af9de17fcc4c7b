// What `cleave tune` and the benchmark need beyond the public functions.
#include <nanobind/stl/string.h>

#include <chrono>

#include "bindings.h"
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
  if (!spec)
    refuse_value("\"{}\" cannot be planned by name; only plans for a GPU can",
                 candidates[index].kernel);
  const Unlocked unlocked;
  return PlanObject(planned.problem(), planned.options(), plan_as(planned.problem(), *spec));
}

std::string tune_store(const PlanObject& plan) {
  PlanCache::shared().clear();  // what is planned from now on may be planned better
  return remember(plan.plan());
}

/// Microseconds per call of the C++ plan, which GemmPlan.run adds the reading of Python's arguments
/// to.
double host_bench(const PlanObject& self, nb::handle a, nb::handle b, nb::handle out, int calls,
                  nb::handle stream, nb::handle scale_a, nb::handle scale_b, nb::handle offs) {
  TensorReader reader(stream);
  const GemmArguments arguments = self.read(
      {.a = a, .b = b, .out = out, .scale_a = scale_a, .scale_b = scale_b, .offs = offs}, reader);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) self.plan().run(arguments, reader.stream());
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
             .count() /
         calls;
}

}  // namespace

void bind_tuning(nb::module_& m) {
  m.def("plan_candidate", &plan_candidate, "planned"_a, "index"_a,
        "The plan that runs as `planned.candidates[index]`.",
        nb::sig("def plan_candidate(planned: GemmPlan, index: int) -> GemmPlan"));
  m.def("tune_store", &tune_store, "plan"_a,
        "Makes the plan's choice the automatic one for its problem. Returns the tuning file.",
        nb::sig("def tune_store(plan: GemmPlan) -> str"));
  m.def("host_bench", &host_bench, "plan"_a, "a"_a, "b"_a, "out"_a, "calls"_a, "stream"_a,
        "scale_a"_a = nb::none(), "scale_b"_a = nb::none(), "offs"_a = nb::none(),
        "Microseconds of host time per launch from C++.",
        nb::sig(
            "def host_bench(plan: GemmPlan, a: object, b: object, out: object, calls: int, "
            "stream: object, scale_a: object = None, scale_b: object = None, offs: object = None) "
            "-> float"));
}

}  // namespace cleave::python

// What `cleave tune` and the benchmark need beyond the public functions.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>

#include "array/stream.h"
#include "call/define.h"
#include "module/bindings.h"
#include "module/errors.h"
#include "plan/cost/product_model.h"
#include "plan/make_plan.h"
#include "plan/measured/covering.h"
#include "plan/measured/tuned.h"
#include "plan/plans/prepared.h"
#include "plans/launch.h"
#include "plans/plan_cache.h"
#include "plans/plan_object.h"
#include "runtime/context.h"
#include "runtime/kernel_cache.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

PlanObject plan_as(const PlanObject& planned, const std::string& kernel) {
  const std::optional<Spec> spec = parse_spec(kernel);
  if (!spec) {
    refuse_value("kernel is \"{}\", which names no kernel of a GPU; take one of the plan's candidates", kernel);
  }
  const nb::gil_scoped_release unlocked;
  return PlanObject(planned.problem(), planned.options(), cleave::plan_as(planned.problem(), *spec),
                    planned.backward());
}

std::string tune_store(const PlanObject& plan) {
  RecentPlans<GemmProblem>::shared().clear();  // what is planned from now on may be planned better
  return remember(plan.plan());
}

bool is_tuned(const PlanObject& plan) {
  return cleave::is_tuned(plan.problem(), device_info(plan.problem().device));
}

Fields tune_merge(const std::string& text, bool replaces) {
  RecentPlans<GemmProblem>::shared().clear();
  const MergedTable merged = merge_tuned(text, replaces);
  forget_plans();
  nb::dict fields;
  fields["added"] = merged.added;
  fields["replaced"] = merged.replaced;
  fields["kept"] = merged.kept;
  fields["problem"] = merged.problem;
  return fields;
}

std::vector<PlanObject> prepare_rows(const PlanObject& planned, int64_t first, int64_t last,
                                     const std::string& kernels) {
  if (kernels != "all" && kernels != "covering")
    refuse_value("kernels is \"{}\"; it must be \"all\" or \"covering\"", kernels);
  RecentPlans<GemmProblem>::shared().clear();
  std::vector<PlanObject> plans;
  for (auto& plan :
       cleave::prepare_rows(planned.problem(), first, last, kernels == "all" ? Kernels::all : Kernels::covering)) {
    const GemmProblem problem = plan->problem();
    plans.emplace_back(problem, planned.options(), std::move(plan));
  }
  return plans;
}

std::vector<PlanObject> covering_plans(const PlanObject& planned) {
  std::vector<PlanObject> plans;
  for (auto& plan : cleave::covering_plans(planned.problem()))
    plans.emplace_back(planned.problem(), planned.options(), std::move(plan));
  return plans;
}

/// Host time per call.
template <class Call>
double microseconds(int64_t calls, const Call& call) {
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < calls; ++i) call();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / double(calls);
}

/// Microseconds a call of the C++ plan, to which GemmPlan.run adds the reading of Python's arguments.
double host_bench(const PlanObject& self, const GemmInputs& inputs, nb::handle stream, int64_t calls) {
  TensorReader reader(stream);
  const GemmArguments arguments = self.read(inputs, reader);
  return microseconds(calls, [&] { self.plan().run(arguments, reader.stream()); });
}

/// Microseconds a launch of a kernel that does nothing, as plans launch theirs.
double launch_floor(int device, int calls, nb::handle stream) {
  const auto cuda_stream = static_cast<CUstream>(parse_stream(stream).value_or(nullptr));
  const ContextGuard context(device);
  const Kernel& kernel = load_kernel({.source = "extern \"C\" __global__ void cleave_empty(int) {}",
                                      .entry = "cleave_empty",
                                      .device = device,
                                      .limits = {}});
  const LaunchShape shape{.block = {32, 1, 1}, .programmatic = true};
  const int parameter = 0;
  return microseconds(calls, [&] { kernel.launch(shape, cuda_stream, &parameter); });
}

}  // namespace

void bind_tuning(nb::module_& m) {
  nb::class_<ProductModel>(m, "ProductModel", "What the planner's model makes of kernels, for constants to be fitted.")
      .def(nb::init<>())
      .def(
          "add",
          [](ProductModel& self, const PlanObject& planned, const std::string& kernel,
             const std::vector<int64_t>& sizes) { return self.add(planned.plan(), kernel, sizes); },
          "planned"_a, "kernel"_a, "sizes"_a = nb::tuple(),
          "Adds a kernel of the plan's problem, whose groups have `sizes`; returns the kind of its mainloop.",
          nb::sig("def add(self, planned: GemmPlan, kernel: str, sizes: collections.abc.Sequence[int] = ()) -> int"))
      .def("predict", &ProductModel::predict, "constants"_a, "likely"_a = nb::none(),
           "Microseconds of all kernels, with these constants in the order of `constant_names`, for the groups' sizes "
           "or for those that the planner takes to be likely, of `most_likely`.")
      .def("features", &ProductModel::features, "constants"_a, "likely"_a = nb::none(),
           "What the planner's trees may ask of each kernel, in the order of `feature_names`.")
      .def("predict_shipped", &ProductModel::predict_shipped, "Microseconds of all kernels, as the planner has them.")
      .def_static(
          "most_likely", [] { return Likely::kMost; }, "How many numbers of tiles are likely at most.")
      .def_static("feature_names", &ProductModel::feature_names)
      .def_static("constant_names", &ProductModel::constant_names)
      .def_static("constants", &ProductModel::constants, "kind"_a, "The constants of a kind of mainloop that ship.");
  m.def("plan_as", &plan_as, "planned"_a, "kernel"_a,
        "The plan of the same problem that runs as `kernel`, which is as in `planned.candidates`.");
  m.def("tune_store", &tune_store, "plan"_a,
        "Makes the plan's choice the automatic one for its problem. Returns the tuning file.");
  m.def(
      "prepare_rows", &prepare_rows, "planned"_a, "first"_a, "last"_a, "kernels"_a,
      "Chooses kernels, \"all\" or those of the \"covering\" set, for the plan's problem with every M of a range, for\n"
      "later plans to take. Returns a plan of each, which is to be prepared.");
  m.def("covering_plans", &covering_plans, "planned"_a,
        "The plan's problem by each kernel of its covering set; none where it has no such set.");
  m.def("is_tuned", &is_tuned, "plan"_a, "Whether the plan's problem itself was measured on a GPU of this name.");
  m.def("tune_merge", &tune_merge, "text"_a, "replaces"_a,
        "Adds the lines of another tuning file, of which `text` is the content, to this user's. Returns how many "
        "were\nadded, replaced and kept as they were, and the problem: why some are not believed.");
  m.def("launch_floor", &launch_floor, "device"_a, "calls"_a, "stream"_a,
        "Microseconds of host time per launch of a kernel that does nothing.");
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

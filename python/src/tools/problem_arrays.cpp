// Problems by their text, and what they read and write by addresses: for tools that measure whatever an
// application has planned.
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>

#include <map>

#include "array/stream.h"
#include "cleave/names.h"
#include "module/bindings.h"
#include "module/errors.h"
#include "plan/problem_text.h"
#include "plans/plan_cache.h"
#include "plans/plan_object.h"
#include "problem/placement.h"
#include "product/plan_problem.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

PlanObject plan_text(const std::string& text, const std::string& device) {
  std::optional<GemmProblem> problem = parse_problem(text);
  if (!problem) refuse_value("\"{}\" is no problem as CLEAVE_LOG_SHAPES and the tuning file have them", text);
  problem->device = parse_device(device);
  return PlanObject(*problem, GemmOptions{}, make_plan(*problem));
}

/// An argument of a launch: where GemmArguments has it, and where it lies.
struct LaunchArray {
  const char* name;
  void (*set)(GemmArguments&, void*);
  Placement (*place)(const GemmProblem&);
};

#define CLEAVE_ARRAY(member, place) \
  {#member, [](GemmArguments& x, void* p) { x.member = static_cast<decltype(x.member)>(p); }, place}
constexpr LaunchArray kArrays[] = {
    CLEAVE_ARRAY(a, a_of),
    CLEAVE_ARRAY(b, b_of),
    CLEAVE_ARRAY(c, c_of),
    CLEAVE_ARRAY(d, d_of),
    CLEAVE_ARRAY(bias, bias_of),
    CLEAVE_ARRAY(scale_a, scale_a_of),
    CLEAVE_ARRAY(scale_b, scale_b_of),
    CLEAVE_ARRAY(weight_scale, weight_scale_of),
    CLEAVE_ARRAY(weight_zero, weight_zero_of),
    CLEAVE_ARRAY(zero_a, zero_a_of),
    CLEAVE_ARRAY(zero_b, zero_b_of),
    CLEAVE_ARRAY(scale_d, scale_d_of),
    CLEAVE_ARRAY(scale_out, scale_out_of),
    CLEAVE_ARRAY(amax, amax_of),
    CLEAVE_ARRAY(group_offsets, group_offsets_of),
    CLEAVE_ARRAY(group_sizes, group_sizes_of),
    CLEAVE_ARRAY(gather, gather_of),
};
#undef CLEAVE_ARRAY

/// Elements from the first to the last.
int64_t elements_of(const Placement& x) {
  const auto reach = [](int64_t size, int64_t stride) { return (size - 1) * stride; };
  return 1 + reach(x.rows, x.layout.stride_row) + reach(x.columns, x.layout.stride_col) +
         reach(x.batch, x.layout.stride_batch);
}

FieldsList arrays_of(const PlanObject& planned) {
  nb::list list;
  for (const LaunchArray& array : kArrays) {
    const Placement place = array.place(planned.problem());
    if (place.empty()) continue;
    nb::dict fields;
    fields["name"] = array.name;
    fields["dtype"] = std::string(to_string(place.layout.dtype));
    fields["elements"] = elements_of(place);
    fields["alignment"] = place.layout.alignment;
    list.append(fields);
  }
  return list;
}

Fields groups_of(const PlanObject& planned) {
  const GemmProblem& p = planned.problem();
  nb::dict fields;
  fields["count"] = p.groups.dimension == Grouping::none ? 0 : p.batch;
  fields["extent"] = grouped_extent(p);
  fields["bounds"] = std::string(to_string(p.groups.bounds));
  fields["spacing"] = p.groups.spacing;
  fields["expected_m"] = p.groups.expected_m;
  fields["slots"] = p.gather.rows * p.gather.divisor;
  return fields;
}

void run_at(const PlanObject& planned, const std::map<std::string, uintptr_t>& addresses, nb::handle stream) {
  GemmArguments arguments;
  for (const LaunchArray& array : kArrays) {
    const auto found = addresses.find(array.name);
    if (found != addresses.end()) array.set(arguments, reinterpret_cast<void*>(found->second));
  }
  if (planned.problem().has_c) arguments.beta = 1;
  void* handle = parse_stream(stream).value_or(nullptr);
  const nb::gil_scoped_release unlocked;
  planned.plan().run(arguments, handle);
}

}  // namespace

void bind_problem_arrays(nb::module_& m) {
  m.def(
      "problem_text", [](const PlanObject& planned) { return problem_text(planned.problem()); }, "plan"_a,
      "The problem in a line, as CLEAVE_LOG_SHAPES and the tuning file have it.");
  m.def("plan_text", &plan_text, "text"_a, "device"_a, "The plan of a problem of that line, of packed matrices.");
  m.def("arrays_of", &arrays_of, "plan"_a,
        "What the plan's launch reads and writes: the name, dtype, elements (from the first to the last) and\n"
        "alignment in bytes of each array.");
  m.def("groups_of", &groups_of, "plan"_a,
        "The groups of the plan's problem: count (0 without groups), the extent of the dimension that they cut,\n"
        "bounds, spacing, and slots, of which a list names some (0 without a list).");
  m.def("run_at", &run_at, "plan"_a, "addresses"_a, "stream"_a,
        "Runs the plan on the device's arrays of these names at these addresses, which nobody checks.");
}

}  // namespace cleave::python

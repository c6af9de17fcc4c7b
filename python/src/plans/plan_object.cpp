#include "plans/plan_object.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "call/define.h"
#include "cleave/epilogue.h"
#include "cleave/names.h"
#include "module/bindings.h"
#include "module/errors.h"
#include "operands/roles.h"
#include "plans/launch.h"
#include "plans/plan_docs.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

constexpr const char* kGemmPlanDoc =
    R"(How products of one form run: shapes, strides, dtypes, device and options.

Immutable and thread-safe. Made by `plan_gemm`, `plan_scaled_gemm`, `plan_grouped_gemm` and `plan_mixed_gemm`.)";

constexpr const char* kRunDoc =
    R"(Runs the product on arrays of the planned form.

The arguments and errors are those of the function that was planned: `gemm`, `scaled_gemm` or
`grouped_gemm`, whose alignment, expected_m, top_k and zero_rest the plan keeps. For a plan of
plan_mixed_gemm, b is `weights.packed`, and scales, zeros and global_scale are the weight's.

Enqueues on the stream and returns; allocates nothing if `out` is given. Legal while the stream is
being captured if the plan has run, or was prepared, on that stream.)";

constexpr const char* kCandidatesDoc =
    R"(The choices that the planner considered, cheapest first.

Each has kernel, split_k_mode, split_k_slices, predicted_us and workspace_size.)";

/// A pointer may be better aligned than the plan needs.
void adopt_alignment(const GemmProblem& planned, GemmProblem& given) {
  for (MatrixLayout GemmProblem::* matrix : {&GemmProblem::a, &GemmProblem::b, &GemmProblem::c, &GemmProblem::d}) {
    (given.*matrix).alignment = std::min((given.*matrix).alignment, (planned.*matrix).alignment);
  }
  const auto adopt = [](auto& given_layouts, const auto& planned_layouts) {
    for (size_t i = 0; i < std::size(planned_layouts); ++i)
      given_layouts[i].alignment = std::min(given_layouts[i].alignment, planned_layouts[i].alignment);
  };
  if (planned.epilogue.function == nullptr) return;
  adopt(given.epilogue.inputs, planned.epilogue.inputs);
  adopt(given.epilogue.outputs, planned.epilogue.outputs);
}

std::string describe(const MatrixLayout& x) {
  return fmt::format("{} with strides ({}, {}, {}) aligned to {} bytes", to_string(x.dtype), x.stride_batch,
                     x.stride_row, x.stride_col, x.alignment);
}

std::string describe(const ScaleLayout& x) {
  switch (x.kind) {
    case Scaling::none:
      return "missing";
    case Scaling::vector:
      return fmt::format("{} with strides ({}, {})", x.stride_row == 0 ? "one value" : "a vector", x.stride_batch,
                         x.stride_row);
    case Scaling::block:
      break;
  }
  return fmt::format("blocks of {}x{} with strides ({}, {}, {})", x.rows, kScaleBlock, x.stride_batch, x.stride_row,
                     x.stride_k);
}

std::string describe(const ConvLayout& x) {
  if (x.kind == Conv::none) return "none";
  std::string text = fmt::format("{} of {} images of {} channels with {} filters a group", to_string(x.kind), x.images,
                                 x.channels, x.filters);
  for (const ConvAxis& axis : x.axes) {
    text += fmt::format(", {} x {} by {} padded {} and {} dilated {}", axis.size, axis.filter, axis.stride,
                        axis.pad_begin, axis.pad_end, axis.dilation);
  }
  return text;
}

std::string describe(const GroupLayout& x) {
  if (x.dimension == Grouping::none) return "none";
  std::string text = fmt::format("groups of {} by {} of int{} with spacing {}", to_string(x.dimension),
                                 to_string(x.bounds), x.wide ? 64 : 32, x.spacing);
  if (x.expected_m > 0) text += fmt::format(" and {} rows expected", x.expected_m);
  return text;
}

std::string describe(const std::string& text) {
  return text;
}

std::string describe(const EpilogueFunction* function) {
  return function == nullptr ? "missing" : "\"" + function->text() + "\"";
}

std::string describe(const EpilogueProblem& x) {
  std::string text;
  const auto add = [&](const std::string& name, const EpilogueLayout& layout) {
    text += fmt::format("{}{}: {} with strides ({}, {}) aligned to {} bytes", text.empty() ? "" : "; ", name,
                        to_string(layout.dtype), layout.stride_batch, layout.stride, layout.alignment);
  };
  for (size_t i = 0; i < x.function->inputs().size(); ++i) add(x.function->inputs()[i].name, x.inputs[i]);
  for (size_t i = 0; i + 1 < x.function->outputs().size(); ++i) add(x.function->outputs()[i + 1].name, x.outputs[i]);
  return text;
}

std::string describe(int64_t number) {
  return std::to_string(number);
}

template <class Enum>
  requires std::is_enum_v<Enum>
std::string describe(Enum value) {
  return std::string(to_string(value));
}

/// The first difference, in the order in which a reader would look for it.
[[noreturn]] void refuse(const GemmProblem& planned, const GemmProblem& given) {
  const auto differ = [](const char* what, const std::string& seen, const std::string& expected) {
    refuse_value(
        "{} is {}, but the plan is for {}; make a plan for these arrays with cleave.plan_gemm, "
        "cleave.plan_scaled_gemm, cleave.plan_grouped_gemm, cleave.plan_mixed_gemm or cleave.plan_conv2d",
        what, seen, expected);
  };
  const auto compare = [&](const char* what, const auto& seen, const auto& expected) {
    if (!(seen == expected)) differ(what, describe(seen), describe(expected));
  };
  const auto presence = [&](const char* name, bool seen, bool expected) {
    if (seen != expected) differ(name, seen ? "given" : "missing", expected ? "one" : "none");
  };
  const auto size = [](const GemmProblem& p) { return fmt::format("{} x {} x {} x {}", p.batch, p.m, p.n, p.k); };
  compare("the device", device_text(given.device), device_text(planned.device));
  compare("the grouping", given.groups, planned.groups);
  presence("gather", given.gather.given, planned.gather.given);
  compare("the number of a's rows, of which gather names some,", given.gather.rows, planned.gather.rows);
  compare("the convolution", given.conv, planned.conv);
  compare("the problem's batch x M x N x K", size(given), size(planned));
  presence("c", given.has_c, planned.has_c);
  presence("azp_adj", given.has_zero, planned.has_zero);
  presence("scale_d", given.has_scale_d, planned.has_scale_d);
  compare("scale_out", given.scale_out, planned.scale_out);
  presence("amax", given.has_amax, planned.has_amax);
  compare("the epilogue function", given.epilogue.function, planned.epilogue.function);
  compare("the epilogue function's inputs or outputs", given.epilogue, planned.epilogue);
  compare("the bias", given.bias, planned.bias);
  compare("the bias's distance from group to group", given.bias_stride_batch, planned.bias_stride_batch);
  compare("a", given.a, planned.a);
  compare("b", given.b, planned.b);
  compare("c", given.c, planned.c);
  compare("out", given.d, planned.d);
  compare("scale_a", given.scale_a, planned.scale_a);
  compare("scale_b", given.scale_b, planned.scale_b);
  compare("the bias", given.bias_dtype, planned.bias_dtype);
  throw std::logic_error("unreachable");
}

FieldsList candidates(const PlanObject& self) {
  nb::list list;
  for (const Candidate& candidate : self.plan().candidates()) {
    nb::dict entry;
    entry["kernel"] = candidate.kernel.c_str();
    entry["split_k_mode"] = std::string(to_string(candidate.split_k_mode)).c_str();
    entry["split_k_slices"] = candidate.split_k_slices;
    entry["predicted_us"] = candidate.predicted_us;
    entry["workspace_size"] = candidate.workspace_size;
    list.append(entry);
  }
  return list;
}

template <class... Ps>
bool any_given(const GemmInputs& inputs, List<Ps...>) {
  return (given(inputs.get<Ps>()) || ...);
}

using AllBounds = List<arg::Offs, arg::Indptr, arg::Starts, arg::Sizes, arg::Counts, arg::Gather>;
using ZeroPoints = List<arg::Azp, arg::AzpAdj>;
using Scales = Concat<List<arg::ScaleA, arg::ScaleB, arg::ScaleD, arg::ScaleOut, arg::Amax>, ZeroPoints>;

void refuse_extras(const GemmInputs& inputs) {
  if (!any_given(inputs, Concat<AllBounds, ZeroPoints>())) return;
  refuse_value("the plan is for a convolution, which has no zero points and no groups of rows; leave them out");
}

void refuse_weights(const GemmInputs& inputs) {
  if (!any_given(inputs, WeightArrays())) return;
  refuse_value("scales, zeros or global_scale is given, but the plan is for a b that is not packed; leave it out");
}

}  // namespace

template <class Use>
auto PlanObject::with_operands(const GemmInputs& inputs, TensorReader& reader, const Use& use) const {
  const auto d_type = given(inputs.get<arg::Out>()) ? std::nullopt : std::optional(problem_.d.dtype);
  if (const auto* conv = std::get_if<ConvOptions>(&options_)) {
    refuse_extras(inputs);
    refuse_weights(inputs);
    ConvOptions options = *conv;
    options.d_type = d_type;
    ConvOperands operands(python::with_operands(options.kind, inputs.get<arg::A>(), inputs.get<arg::B>(), inputs),
                          reader, options);
    return use(operands);
  }
  GemmOptions options = std::get<GemmOptions>(options_);
  options.d_type = d_type;
  options.grouped |= any_given(inputs, AllBounds());
  if (!options.weights) refuse_weights(inputs);
  GemmOperands operands(inputs, reader, options);
  return use(operands);
}

nb::object PlanObject::run(const GemmInputs& inputs, const CallArguments& call) const {
  TensorReader reader(call.get<arg::Stream>());
  return with_operands(inputs, reader, [&](auto& operands) {
    set_scalars(call, operands);
    adopt_alignment(problem_, operands.problem);
    if (!(operands.problem == problem_)) refuse(problem_, operands.problem);
    operands.allocate(reader);
    with_roles(problem_.conv.kind, [&] { launch(*plan_, operands, call, reader); });
    return operands.result();
  });
}

GemmArguments PlanObject::read(const GemmInputs& inputs, TensorReader& reader) const {
  return with_operands(inputs, reader, [](auto& operands) { return operands.arguments; });
}

void bind_gemm_plan(nb::module_& m) {
  nb::class_<PlanObject> type(m, "GemmPlan", kGemmPlanDoc);
  using Operands = List<arg::A, arg::B, arg::Offs>;
  using Options = Concat<List<arg::Bias, arg::C, arg::Epilogue, arg::Out>, Scalars, Scales,
                         Without<Bounds, List<arg::Alignment>>, List<arg::Gather>, WeightArrays, Place>;
  define(type, "run", Operands(), Options(), "Array", kRunDoc,
         [](const PlanObject& self, const auto& call) { return self.run(call, call); });
  type.def(
          "prepare", [](const PlanObject& self, nb::handle stream) { prepare(self.plan(), stream); },
          "stream"_a = nb::none(), kPrepareDoc)
      .def_prop_ro("candidates", &candidates, kCandidatesDoc)
      .def_prop_ro(
          "split_k_mode", [](const PlanObject& self) { return std::string(to_string(self.plan().split_k_mode())); },
          "The mode that was chosen, never \"auto\".")
      .def("__repr__", [](const PlanObject& self) {
        const GemmPlan& plan = self.plan();
        return fmt::format("<cleave.GemmPlan {} split_k_mode={} split_k_slices={}>", plan.kernel_name(),
                           to_string(plan.split_k_mode()), plan.split_k_slices());
      });

  const auto add = [&](const char* name, auto property, const char* doc) {
    type.def_prop_ro(name, [property](const PlanObject& self) { return (self.plan().*property)(); }, doc);
  };
  add("workspace_size", &GemmPlan::workspace_size, "Bytes of workspace that one launch needs; 0 if none.");
  add("counter_size", &GemmPlan::counter_size,
      "Leading bytes of the workspace that must be zero before its first use.");
  add("split_k_slices", &GemmPlan::split_k_slices, "The number of slices that was chosen.");
  add("kernel_name", &GemmPlan::kernel_name,
      "The kernel's family, tile and split, in words that docs/cli.md explains.");
  add("kernel_source", &GemmPlan::kernel_source, "The source text that is compiled; empty for the CPU backend.");
  add("kernel_sources", &GemmPlan::kernel_sources, kKernelSourcesDoc);
  type.def_prop_ro(
      "kernel_arch", [](const PlanObject& self) { return arch_of(self.problem().device); }, kKernelArchDoc);
  add("why", &GemmPlan::why, "What was chosen, against what, in one sentence.");
  add("roofline_us", &GemmPlan::roofline_us,
      "Microseconds that the bytes or the operations alone would take on this device.");
}

}  // namespace cleave::python

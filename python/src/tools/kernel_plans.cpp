// Routers, their logits and low-rank adapters as tools see them: planned by sizes, for any device.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "array/tensor.h"
#include "call/values.h"
#include "cleave/device.h"
#include "cleave/lora.h"
#include "cleave/route.h"
#include "cleave/router_logits.h"
#include "module/bindings.h"
#include "operands/lora_operands.h"
#include "plans/launch.h"
#include "plans/plan_cache.h"
#include "product/plan_problem.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace cleave::python {
namespace {

struct KernelPlan {
  std::shared_ptr<const Plan> plan;
  int device;
};

MatrixLayout rows_of(nb::handle dtype, const char* name, int64_t rows, int64_t columns) {
  return {.dtype = parse_dtype(dtype, name, kFloatTypes), .stride_row = columns, .stride_batch = rows * columns};
}

KernelPlan plan_route_problem(int64_t tokens, int64_t experts, int64_t top_k, nb::handle dtype, int64_t n_group,
                              int64_t topk_group, bool has_bias, const char* scoring_func, const char* device) {
  const RouteProblem problem{.tokens = tokens,
                             .experts = experts,
                             .top_k = top_k,
                             .logits = rows_of(dtype, "dtype", tokens, experts),
                             .scoring_func = from_string<ScoringFunc>(scoring_func),
                             .has_bias = has_bias,
                             .n_group = n_group,
                             .topk_group = topk_group,
                             .device = parse_device(device)};
  return {plan(problem), problem.device};
}

KernelPlan plan_router_logits_problem(int64_t tokens, int64_t experts, int64_t features, nb::handle dtype,
                                      nb::handle weight_dtype, bool static_weight, const char* device) {
  const RouterLogitsProblem problem{.tokens = tokens,
                                    .experts = experts,
                                    .features = features,
                                    .x = rows_of(dtype, "dtype", tokens, features),
                                    .weight = rows_of(weight_dtype, "weight_dtype", experts, features),
                                    .static_weight = static_weight,
                                    .device = parse_device(device)};
  return {plan(problem), problem.device};
}

KernelPlan plan_lora_problem(int64_t rows, int64_t features, int64_t outputs, int64_t rank, int64_t adapters,
                             nb::handle dtype, const char* device) {
  const LoraProblem problem{.rows = rows,
                            .features = features,
                            .outputs = outputs,
                            .rank = rank,
                            .adapters = adapters,
                            .x = rows_of(dtype, "dtype", rows, features),
                            .a = rows_of(dtype, "dtype", rank, features),
                            .b = rows_of(dtype, "dtype", outputs, rank),
                            .out = rows_of(dtype, "dtype", rows, outputs),
                            .device = parse_device(device)};
  return {plan(problem), problem.device};
}

/// What cleave.torch.lora runs for few rows, on arrays of any framework.
void lora(nb::handle x, nb::handle a, nb::handle b, nb::handle offs, nb::handle out, double scale, nb::handle stream) {
  TensorReader reader(stream);
  const LoraCall call = make_call({.x = reader.read(x, "x"),
                                   .a = reader.read(a, "a"),
                                   .b = reader.read(b, "b"),
                                   .offs = reader.read(offs, "offs"),
                                   .out = reader.read(out, "out")},
                                  scale);
  const auto planned = plan(call.problem);
  const nb::gil_scoped_release unlocked;
  planned->run(call.arguments, reader.stream());
}

}  // namespace

void bind_kernel_plans(nb::module_& m) {
  nb::class_<KernelPlan>(m, "KernelPlan", "How a router, its logits or low-rank adapters run: one launch.")
      .def_prop_ro(
          "kernel_name", [](const KernelPlan& self) { return self.plan->kernel_name(); },
          "The kernel, with blocks and threads.")
      .def_prop_ro(
          "kernel_source", [](const KernelPlan& self) { return self.plan->kernel_source(); },
          "The source text that is compiled; empty for the CPU backend.")
      .def_prop_ro("memory_gb_per_s", [](const KernelPlan& self) {
        return self.device == kCpu ? 0.0 : double(device_info(self.device).memory_gb_per_s);
      });
  m.def("plan_route_problem", &plan_route_problem, "tokens"_a, "experts"_a, "top_k"_a, "dtype"_a, "n_group"_a,
        "topk_group"_a, "has_bias"_a, "scoring_func"_a, "device"_a, "What `route` runs for such logits.");
  m.def("plan_router_logits_problem", &plan_router_logits_problem, "tokens"_a, "experts"_a, "features"_a, "dtype"_a,
        "weight_dtype"_a, "static_weight"_a, "device"_a, "What `router_logits` runs for such operands.");
  m.def("plan_lora_problem", &plan_lora_problem, "rows"_a, "features"_a, "outputs"_a, "rank"_a, "adapters"_a, "dtype"_a,
        "device"_a, "What `lora` runs for such operands.");
  m.def("lora", &lora, "x"_a, "a"_a, "b"_a, "offs"_a, "out"_a, "scale"_a, "stream"_a = nb::none(),
        "out += scale * (x @ a[g]^T) @ b[g]^T, for the rows of each adapter g, which end at offs[g].");
}

}  // namespace cleave::python

// cleave.moe.router_logits.
#include "array/tensor.h"
#include "call/define.h"
#include "call/parameters.h"
#include "module/bindings.h"
#include "operands/router_logits_operands.h"
#include "plans/plan_cache.h"
#include "route/logits_problem.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

constexpr const char* kRouterLogitsDoc =
    R"(A router's logits for few tokens, x @ weight^T in float32, in one launch.

Args:
    x: [tokens, features]; weight: [experts, features]. float32, bfloat16 or float16 each, rows
        contiguous: bfloat16 activations and float32 weights need no conversion.
    static_weight: True promises that no work that may still be running writes weight: it is then read
        while the launch ahead ends.

Returns:
    logits, float32 [tokens, experts], as `route` takes them.

Operands are multiplied as they are, by multiply-adds: a product with a 16-bit factor is exact, and
rounded only when it is added. A logit has the same bits in every run, on the CPU and every GPU, and
whatever the other tokens are. Weights are read again for every eight tokens: beyond some 64 tokens
`cleave.gemm` is faster, in float32 with precision="tf32x3", say.)";

using X = Array<"x">;
using Weight = Array<"weight">;
using StaticWeight = Flag<"static_weight", "False">;

/// Planned at once, so that what cannot be is refused before anything is made.
template <class Arguments>
nb::object router_logits(const Arguments& arguments) {
  TensorReader reader(arguments.template get<arg::Stream>());
  bool static_weight = false;
  arguments.template read<StaticWeight>(static_weight);
  RouterLogitsCall call = make_call(
      {.x = reader.template read<X>(arguments), .weight = reader.template read<Weight>(arguments)}, static_weight);
  const RouterLogitsProblem& p = call.problem;
  const auto plan = RecentPlans<RouterLogitsProblem>::shared().get(p);

  const nb::handle like = arguments.template get<X>();
  const nb::object logits =
      reader.make(&ArrayType::empty, like, std::array{p.tokens, p.experts}, DType::f32, p.device, "another framework");
  call.arguments.logits = static_cast<float*>(reader.read(logits, "the result").data);
  {
    const nb::gil_scoped_release unlocked;
    plan->run(call.arguments, reader.stream());
  }
  return finished(like, logits);
}

}  // namespace

void bind_router_logits(nb::module_& m) {
  define(m, "router_logits", List<X, Weight>(), List<StaticWeight, arg::Stream>(), "Array", kRouterLogitsDoc,
         [](const auto& arguments) { return router_logits(arguments); });
}

}  // namespace cleave::python

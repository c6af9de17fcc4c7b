// cleave.moe.router_logits.
#include "bindings.h"
#include "define.h"
#include "docs.h"
#include "operands/router_logits_operands.h"
#include "parameters.h"
#include "plan_cache.h"
#include "tensor.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

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

#include "operands/router_logits_operands.h"

#include "product.h"

namespace cleave::torch_ops {
namespace {

using X = TensorArgument<"x">;
using RouterWeight = TensorArgument<"weight">;
using StaticWeight = Argument<"static_weight", "bool", bool, "False">;

}  // namespace

void add_router_logits(Operators& operators) {
  operators.add("moe_router_logits", List<X, RouterWeight, StaticWeight>(), List<>(), [](const auto& arguments) {
    RouterLogitsCall call = make_call({.x = operand<X>(arguments), .weight = operand<RouterWeight>(arguments)},
                                      arguments.template get<StaticWeight>());
    const RouterLogitsProblem& p = call.problem;
    const auto planned = plan(p);
    const int64_t shape[] = {p.tokens, p.experts};
    const Tensor logits = make(shape, DType::f32, p.device, call.arguments.logits);
    planned->run(call.arguments, current_stream(p.device));
    return logits;
  });
}

}  // namespace cleave::torch_ops

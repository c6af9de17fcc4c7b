#include "operands/lora_operands.h"

#include "product.h"

namespace cleave::torch_ops {
namespace {

using X = TensorArgument<"x">;
using Ends = TensorArgument<"offs">;
using Scale = Argument<"scale", "float", double, "1.0">;

}  // namespace

void add_lora(Operators& operators) {
  operators.add("lora.out", List<X, arg::A, arg::B, Ends, Scale>(), List<arg::Out>(), [](const auto& arguments) {
    const LoraCall call = make_call({.x = operand<X>(arguments),
                                     .a = operand<arg::A>(arguments),
                                     .b = operand<arg::B>(arguments),
                                     .offs = operand<Ends>(arguments),
                                     .out = operand<arg::Out>(arguments)},
                                    arguments.template get<Scale>());
    plan(call.problem)->run(call.arguments, current_stream(call.problem.device));
    mark_written(arguments.template get<arg::Out>());
  });
}

}  // namespace cleave::torch_ops

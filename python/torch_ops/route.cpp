#include "operands/route_operands.h"

#include "product.h"

namespace cleave::torch_ops {
namespace {

using Logits = TensorArgument<"logits">;
using TopK = Argument<"top_k", "int", int64_t>;
using Scoring = NameArgument<"scoring_func", ScoringFunc, "'softmax'">;
using NGroup = Argument<"n_group", "int", int64_t, "1">;
using TopkGroup = Argument<"topk_group", "int?", std::optional<int64_t>, "None">;
using ScoreOfGroups = NameArgument<"group_score", GroupScore, "'top2_sum'">;
using Renormalize = Argument<"renormalize", "bool", bool, "True">;
using RoutedScalingFactor = Argument<"routed_scaling_factor", "float", double, "1.0">;

}  // namespace

void add_route(Operators& operators) {
  using Arguments =
      List<Logits, TopK, arg::Bias, Scoring, NGroup, TopkGroup, ScoreOfGroups, Renormalize, RoutedScalingFactor>;
  operators.add("moe_route", Arguments(), List<>(), [](const auto& call) {
    RouteOptions options;
    call.template read<TopK>(options.top_k);
    call.template read<Scoring>(options.scoring_func);
    call.template read<NGroup>(options.n_group);
    call.template read<TopkGroup>(options.topk_group);
    call.template read<ScoreOfGroups>(options.group_score);
    call.template read<Renormalize>(options.renormalize);
    options.routed_scaling_factor = float32_of(call.template get<RoutedScalingFactor>(), "routed_scaling_factor");
    RouteCall route = make_call({.logits = operand<Logits>(call), .bias = operand<arg::Bias>(call)}, options);
    const RouteProblem& p = route.problem;
    const auto planned = plan(p);
    const int64_t shape[] = {p.tokens, p.top_k};
    const Tensor weights = make(shape, DType::f32, p.device, route.arguments.weights);
    const Tensor ids = make(shape, DType::i32, p.device, route.arguments.ids);
    planned->run(route.arguments, current_stream(p.device));
    return std::tuple{weights, ids};
  });
}

}  // namespace cleave::torch_ops

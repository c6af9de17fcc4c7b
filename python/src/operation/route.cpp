// cleave.moe.route.
#include <array>

#include "array/tensor.h"
#include "call/define.h"
#include "call/parameters.h"
#include "module/bindings.h"
#include "operands/route_operands.h"
#include "plans/plan_cache.h"
#include "route/problem.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

constexpr const char* kRouteDoc =
    R"(Chooses each token's experts, and their weights, from a router's logits, in one launch.

    score = softmax(logits), or sigmoid(logits)
    chosen = the top_k experts with the largest score + bias, the best first
    weight = score, over the sum of the chosen scores if renormalize, times routed_scaling_factor

Args:
    logits: [tokens, experts], float32, bfloat16 or float16, rows contiguous; up to 512 experts.
    top_k: from 1 to 32.
    bias: float32 [experts], which affects the choice alone: DeepSeek-V3's e_score_correction_bias.
    scoring_func: "softmax" over all experts, or "sigmoid" of each.
    n_group, topk_group: experts form n_group groups of neighbours, up to 32, and are chosen from the
        topk_group best groups; from all if that is None.
    group_score: what ranks a group: "top2_sum", the sum of its two best scores, biases included, as in
        DeepSeek-V3, or "max", its best score, as in DeepSeek-V2.
    renormalize: for a softmax, the weights are a softmax of the chosen logits; for sigmoids, 1e-20 is
        added to the sum.

Returns:
    weights, float32 [tokens, top_k], and expert_ids, int32 [tokens, top_k], as `permute` takes them.

Among equal scores the expert with the lower number comes first; -0 equals 0. Unless there is a bias
or group_score="top2_sum", logits are compared instead of scores, which tells apart scores that
float32 rounds to the same number. A NaN is larger than every number, as in torch.topk, and makes the
token's weights NaN where it takes part in them. expert_ids are valid, and never repeat within a
token, whatever the logits are. Results have the same bits in every run and for every number of tokens.)";

using Logits = Array<"logits">;
using TopK = Integer<"top_k">;
using NGroup = Integer<"n_group", "1">;
using TopkGroup = Integer<"topk_group", "None", "int | None", "an integer or None">;
using Scoring = OneOf<"scoring_func", ScoringFunc, "'softmax'">;
using ScoreOfGroups = OneOf<"group_score", GroupScore, "'top2_sum'">;
using Renormalize = Flag<"renormalize", "True">;
using RoutedScalingFactor = Number<"routed_scaling_factor", "1.0">;

using Keywords =
    List<arg::Bias, Scoring, NGroup, TopkGroup, ScoreOfGroups, Renormalize, RoutedScalingFactor, arg::Stream>;

template <class Arguments>
RouteOptions options_of(const Arguments& arguments) {
  RouteOptions options;
  arguments.template read<TopK>(options.top_k);
  arguments.template read<Scoring>(options.scoring_func);
  arguments.template read<NGroup>(options.n_group);
  arguments.template read<TopkGroup>(options.topk_group);
  arguments.template read<ScoreOfGroups>(options.group_score);
  arguments.template read<Renormalize>(options.renormalize);
  arguments.template read<RoutedScalingFactor>(options.routed_scaling_factor);
  return options;
}

/// Planned at once, so that what cannot be is refused before anything is made.
template <class Arguments>
nb::object route(const Arguments& arguments) {
  TensorReader reader(arguments.template get<arg::Stream>());
  const RouteTensors tensors{.logits = reader.template read<Logits>(arguments),
                             .bias = reader.template read<arg::Bias>(arguments)};
  RouteCall call = make_call(tensors, options_of(arguments));
  const auto plan = RecentPlans<RouteProblem>::shared().get(call.problem);

  const nb::handle like = arguments.template get<Logits>();
  const auto make = [&]<class T>(DType dtype, T*& data) {
    const nb::object array = reader.make(&ArrayType::empty, like, std::array{call.problem.tokens, call.problem.top_k},
                                         dtype, call.problem.device, "another framework");
    data = static_cast<T*>(reader.read(array, "the result").data);
    return array;
  };
  const nb::object weights = make(DType::f32, call.arguments.weights), ids = make(DType::i32, call.arguments.ids);
  {
    const nb::gil_scoped_release unlocked;
    plan->run(call.arguments, reader.stream());
  }
  return nb::make_tuple(finished(like, weights), finished(like, ids));
}

}  // namespace

void bind_route(nb::module_& m) {
  define(m, "route", List<Logits, TopK>(), Keywords(), "tuple[Array, Array]", kRouteDoc,
         [](const auto& arguments) { return route(arguments); });
}

}  // namespace cleave::python

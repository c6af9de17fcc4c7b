// cleave.moe.route.
#include <array>

#include "bindings.h"
#include "define.h"
#include "docs.h"
#include "operands/route_operands.h"
#include "parameters.h"
#include "plan_cache.h"
#include "tensor.h"

namespace nb = nanobind;

namespace cleave::python {
namespace {

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

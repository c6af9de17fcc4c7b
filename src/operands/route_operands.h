// From the tensors of a call to a RouteProblem and its pointers: what every front end shares.
#pragma once

#include <optional>

#include "cleave/route.h"
#include "operands/operand.h"

namespace cleave {

struct RouteTensors {
  std::optional<Operand> logits, bias;
};

/// As the members of RouteProblem of these names.
struct RouteOptions {
  int64_t top_k = 1;
  ScoringFunc scoring_func = ScoringFunc::softmax;
  int64_t n_group = 1;
  std::optional<int64_t> topk_group;  ///< none: all of them
  GroupScore group_score = GroupScore::top2_sum;
  bool renormalize = true;
  float routed_scaling_factor = 1.0f;
};

struct RouteCall {
  RouteProblem problem;
  RouteArguments arguments;  ///< without what will be written
};

/// Throws Error for everything that is wrong with one tensor or with how they fit together.
RouteCall make_call(const RouteTensors& tensors, const RouteOptions& options);

}  // namespace cleave

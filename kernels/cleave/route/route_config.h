// Everything about the kernel of route/ that is fixed when it is compiled. What it does not use keeps its default, so
// that equal kernels have equal configurations.
#pragma once

#include "cleave/core/enums.h"
#include "cleave/core/routing.h"

namespace cleave {

struct RouteConfig {
  DType type = DType::f32;  // of logits
  uint32_t per_lane = 1;    // experts of a lane of a token's warp, at most
  ScoringFunc scoring_func = ScoringFunc::softmax;
  bool has_bias = false;
  bool has_groups = false;  // of which some are left out
  GroupScore group_score = GroupScore::max;
  bool renormalize = true;

  CLEAVE_HD friend constexpr bool operator==(const RouteConfig&, const RouteConfig&) = default;
};

/// Threads of a CTA: a warp for each token.
inline constexpr uint32_t kRouteThreads = 128;

/// Whether experts are compared by score + bias, else by their logits.
CLEAVE_HD constexpr bool compares_scores(const RouteConfig& config) {
  return config.has_bias || (config.has_groups && config.group_score == GroupScore::top2_sum);
}

/// Whether weights need scores of the chosen ones alone. They are a softmax of those then, in which
/// no sum over others can underflow.
CLEAVE_HD constexpr bool weighs_chosen(const RouteConfig& config) {
  return config.scoring_func == ScoringFunc::softmax && config.renormalize;
}

/// Whether the sum of a softmax over all experts is needed.
CLEAVE_HD constexpr bool sums_all(const RouteConfig& config) {
  return config.scoring_func == ScoringFunc::softmax && (compares_scores(config) || !config.renormalize);
}

}  // namespace cleave

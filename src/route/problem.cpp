#include "route/problem.h"

#include <bit>
#include <cmath>

#include "cleave/core/math.h"
#include "cleave/core/saturate.h"
#include "cleave/names.h"
#include "problem/arguments.h"

namespace cleave {
namespace {

Placement logits_of(const RouteProblem& p) {
  return {p.logits, p.tokens, p.experts, 1};
}

/// Whether some groups are left out.
bool has_groups(const RouteProblem& p) {
  return p.topk_group < p.n_group;
}

void check_groups(const RouteProblem& p, Messages& out) {
  if (p.n_group < 1 || p.n_group > kMostExpertGroups || p.experts % p.n_group != 0) {
    out.add("n_group is {} for {} experts; it must divide them, and be from 1 to {}", p.n_group, p.experts,
            kMostExpertGroups);
    return;
  }
  if (p.topk_group < 1 || p.topk_group > p.n_group) {
    out.add("topk_group is {}; it must be from 1 to n_group, {}", p.topk_group, p.n_group);
    return;
  }
  const int64_t size = p.experts / p.n_group, most = min_of(kMostChoices, p.topk_group * size);
  if (p.top_k < 1 || p.top_k > most) {
    out.add("top_k is {}; it must be from 1 to {}: of {} experts, and {} at most", p.top_k, most, p.topk_group * size,
            kMostChoices);
  }
  if (has_groups(p) && p.group_score == GroupScore::top2_sum && size < 2) {
    out.add("group_score is top2_sum, but groups have 1 expert; take max");
  }
}

}  // namespace

void check_types(const RouteProblem& p, Messages& out) {
  if (!is_wide_float(p.logits.dtype)) {
    out.add("logits is {}; it must be float16, bfloat16 or float32, convert it", to_string(p.logits.dtype));
  }
}

std::vector<std::string> validate(const RouteProblem& p) {
  Messages out;
  if (p.experts < 1 || p.experts > kMostRoutedExperts) {
    out.add("experts is {}; it must be from 1 to {}: the columns of logits", p.experts, kMostRoutedExperts);
  } else {
    check_groups(p, out);
    if (check_size("tokens", p.tokens, out)) {
      if (p.top_k >= 1 && saturating_product(p.tokens, p.top_k) > kMaxSize) {
        out.add("tokens and top_k are {} and {}; that is 2^31 slots or more. Split the tokens", p.tokens, p.top_k);
      }
      check_rows("logits", logits_of(p), false, out);
    }
  }
  if (!std::isfinite(p.routed_scaling_factor)) {
    out.add("routed_scaling_factor is {}; it must be finite", p.routed_scaling_factor);
  }
  check_types(p, out);
  check_device(p.device, out);
  return out;
}

RouteConfig config_of(const RouteProblem& p) {
  RouteConfig config{.type = p.logits.dtype,
                     .per_lane = std::bit_ceil(ceil_div(uint32_t(p.experts), 32u)),
                     .scoring_func = p.scoring_func,
                     .has_bias = p.has_bias,
                     .has_groups = has_groups(p),
                     .renormalize = p.renormalize};
  if (config.has_groups) config.group_score = p.group_score;
  return config;
}

void check_arguments(const RouteProblem& p, const RouteArguments& arguments) {
  const int64_t slots = p.tokens * p.top_k;
  const NamedOperand operands[] = {
      {"ids", integers_of(slots, false), arguments.ids, true},
      {"weights", vector_of(DType::f32, slots), arguments.weights, true},
      {"logits", logits_of(p), arguments.logits, false},
      {"bias", vector_of(DType::f32, p.has_bias && slots > 0 ? p.experts : 0), arguments.bias, false},
  };
  check_operands(operands);
}

}  // namespace cleave

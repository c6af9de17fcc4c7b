#include "route/launches.h"

#include "jit/translation_unit.h"
#include "route/problem.h"

namespace cleave {

std::vector<RouteLaunch> route_launches(const RouteProblem& p) {
  if (p.tokens == 0) return {};
  const RouteParams params{.tokens = uint32_t(p.tokens),
                           .experts = uint32_t(p.experts),
                           .top_k = uint32_t(p.top_k),
                           .groups = uint32_t(p.n_group),
                           .group_size = uint32_t(p.experts / p.n_group),
                           .kept_groups = uint32_t(p.topk_group),
                           .routed_scaling_factor = p.routed_scaling_factor,
                           .logits_stride = p.logits.stride_row};
  const uint32_t ctas = ceil_div(params.tokens, kRouteThreads / 32);
  const LaunchShape shape{.grid = {ctas, 1, 1}, .block = {kRouteThreads, 1, 1}, .programmatic = true};
  return {{RouteKernel::choose, config_of(p), params, shape}};
}

std::string translation_unit(RouteKernel kernel, const RouteConfig& config) {
  return translation_unit({
      .folder = "route",
      .name = enumerator_name(kernel),
      .config = "RouteConfig",
      .members =
          CLEAVE_PRINT_MEMBERS(config, type, per_lane, scoring_func, has_bias, has_groups, group_score, renormalize),
      .launch_bounds = "cleave::kRouteThreads, 8",
      .entry = route_entry,
      .params = "RouteParams",
  });
}

}  // namespace cleave

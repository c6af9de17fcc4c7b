#include "route/logits_launches.h"

#include "jit/translation_unit.h"
#include "route/logits_problem.h"

namespace cleave {

std::vector<LogitsLaunch> logits_launches(const RouterLogitsProblem& p) {
  if (p.tokens == 0 || p.experts == 0) return {};
  const LogitsConfig config = config_of(p);
  const uint32_t expert_ctas = ceil_div(uint32_t(p.experts), config.experts);
  const LogitsParams params{.tokens = uint32_t(p.tokens),
                            .experts = uint32_t(p.experts),
                            .features = uint32_t(p.features),
                            .part_features = part_features(uint32_t(p.features)),
                            .expert_ctas = FastDivmod(expert_ctas),
                            .x_stride = p.x.stride_row,
                            .weight_stride = p.weight.stride_row};
  const LaunchShape shape{
      .grid = {ceil_div(params.tokens, config.tokens) * expert_ctas, 1, 1},
      .block = {kLogitsWarps * 32, 1, 1},
      .dynamic_shared_bytes = config.tokens * config.experts * kLogitsWarps * uint32_t(sizeof(float)),
      .programmatic = true};
  return {{LogitsKernel::logits, config, params, shape}};
}

std::string translation_unit(LogitsKernel kernel, const LogitsConfig& config) {
  return translation_unit({
      .folder = "route",
      .name = enumerator_name(kernel),
      .config = "LogitsConfig",
      .members = CLEAVE_PRINT_MEMBERS(config, x, weight, tokens, experts, vectors, static_weight),
      .launch_bounds = "cleave::kLogitsWarps * 32, 2",
      .entry = logits_entry,
      .params = "LogitsParams",
  });
}

}  // namespace cleave

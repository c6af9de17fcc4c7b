#include "lora/launches.h"

#include "jit/translation_unit.h"
#include "lora/problem.h"

namespace cleave {
namespace {

/// A CTA's part of so many elements, in whole strips.
uint32_t part_of_cta(const LoraConfig& config, int64_t elements) {
  return round_up(ceil_div(uint32_t(elements), config.cluster), kLoraStrip);
}

}  // namespace

std::vector<LoraLaunch> lora_launches(const LoraProblem& p, int compute_capability) {
  if (p.rows == 0 || p.outputs == 0) return {};
  const LoraConfig config = config_of(p, compute_capability);
  const auto adapters = uint32_t(p.adapters), rows = uint32_t(p.rows);
  const LoraParams params{.adapters = {.wide = p.wide_offs, .count = adapters, .extent = rows},
                          .rank = uint32_t(p.rank),
                          .features = uint32_t(p.features),
                          .outputs = uint32_t(p.outputs),
                          .cta_features = part_of_cta(config, p.features),
                          .cta_outputs = part_of_cta(config, p.outputs),
                          .x_stride = p.x.stride_row,
                          .a_stride = p.a.stride_row,
                          .a_adapter_stride = p.a.stride_batch,
                          .b_stride = p.b.stride_row,
                          .b_adapter_stride = p.b.stride_batch,
                          .out_stride = p.out.stride_row};
  const LaunchShape shape{.grid = {most_group_steps(Grouping::m, rows, adapters, config.rows) * config.cluster, 1, 1},
                          .block = {config.warps * 32, 1, 1},
                          .cluster = config.cluster,
                          .dynamic_shared_bytes = lora_shared_bytes(config),
                          .programmatic = true};
  return {{LoraKernel::lora, config, params, shape}};
}

std::string translation_unit(LoraKernel kernel, const LoraConfig& config) {
  return translation_unit({
      .folder = "lora",
      .name = enumerator_name(kernel),
      .config = "LoraConfig",
      .members = CLEAVE_PRINT_MEMBERS(config, type, rank, rows, warps, cluster, vectors),
      .launch_bounds = "config.warps * 32, cleave::lora_ctas_of_sm(config)",
      .entry = lora_entry,
      .params = "LoraParams",
  });
}

}  // namespace cleave

#include "jit/source.h"

#include <span>

#include "cleave/config/threads.h"
#include "epilogue/spell.h"
#include "jit/translation_unit.h"

namespace cleave {

#define CLEAVE_SPELL(Config, ...)                    \
  static std::string spell(const Config& config) {   \
    return CLEAVE_PRINT_STRUCT(config, __VA_ARGS__); \
  }

CLEAVE_SPELL(OperandConfig, a, b, a_major, b_major, precision, copied_a, copied_b, listed, load_bytes_a, load_bytes_b,
             static_a, static_b)
CLEAVE_SPELL(WeightConfig, format, group, has_zero)
CLEAVE_SPELL(TileConfig, m, n, k, stages)
CLEAVE_SPELL(WarpConfig, consumers, pingpong, m, n, k)
CLEAVE_SPELL(ClusterConfig, multicast_m, multicast_n, k)
CLEAVE_SPELL(ScheduleConfig, split, grouping, group_capacity, apart, in_turn, turns)
CLEAVE_SPELL(ConvConfig, kind, axes, class_capacity, fuses_classes, patches, gather, batches_taps, turned, half_lines,
             fast_load, fast_store)
CLEAVE_SPELL(DirectAxis, taps, stride, dilation, phase)
CLEAVE_SPELL(DirectConfig, method, vector, group, strips, pixels, height, width, depth)
CLEAVE_SPELL(ScaleConfig, rows_a, rows_b, promote)
CLEAVE_SPELL(FunctionOperandConfig, shape, dtype, order, pairs, reduction)

/// As much of its lists as there is. What the function does is its body's to say.
static std::string spell(const FunctionConfig& config) {
  if (!config.given) return "{}";
  const auto list = [](const PackedOperands& operands, uint32_t count) {
    std::string text;
    for (uint32_t i = 0; i < count; ++i)
      text += fmt::format("{}cleave::packed({})", i == 0 ? "" : ", ", spell(unpacked(operands[i])));
    return "{" + text + "}";
  };
  return braced(print_members("given, gated, inputs, outputs, packed_inputs, packed_outputs", config.given,
                              config.gated, config.inputs, config.outputs, list(config.packed_inputs, config.inputs),
                              list(config.packed_outputs, config.outputs)));
}

CLEAVE_SPELL(EpilogueConfig, c, d, bias_dtype, order, bias, has_c, c_pairs, c_words, scaling, scaled_rows,
             scaled_columns, has_zero, has_scale_d, has_amax, has_scale_out, ue8m0, function)
CLEAVE_SPELL(StoreConfig, by_tma, chunks, run_bytes, adds)
CLEAVE_SPELL(AcrossConfig, ranks, partial, vectors)

std::string gemm_source(const GemmConfig& config) {
  return translation_unit({
      .folder = "kernel",
      .name = family_traits(config.family).kernel,
      .config = "GemmConfig",
      .members = CLEAVE_PRINT_MEMBERS(config, family, operands, weights, tile, warps, cluster, schedule, conv, direct,
                                      scales, epilogue, store, across),
      .launch_bounds = "cleave::cta_threads(config), cleave::resident_ctas(config)",
      .entry = gemm_entry,
      .params = "Params<config>",
      .beside = config.epilogue.function.given ? function_body(*config.epilogue.function.function) : std::string(),
  });
}

}  // namespace cleave

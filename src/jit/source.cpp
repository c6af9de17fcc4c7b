#include "jit/source.h"

#include "jit/translation_unit.h"

namespace cleave {

static std::string spell(const OperandConfig& c) {
  return CLEAVE_PRINT_STRUCT(c, a, b, a_major, b_major, precision, load_bytes_a, load_bytes_b);
}

static std::string spell(const TileConfig& c) {
  return CLEAVE_PRINT_STRUCT(c, m, n, k, stages);
}

static std::string spell(const WarpConfig& c) {
  return CLEAVE_PRINT_STRUCT(c, consumers, pingpong, m, n);
}

static std::string spell(const ClusterConfig& c) {
  return CLEAVE_PRINT_STRUCT(c, multicast_m, multicast_n, k);
}

static std::string spell(const ScheduleConfig& c) {
  return CLEAVE_PRINT_STRUCT(c, split, grouping, group_capacity);
}

static std::string spell(const ConvConfig& c) {
  return CLEAVE_PRINT_STRUCT(c, kind, axes, class_capacity, fuses_classes, gather, batches_taps, fast_load, fast_store);
}

static std::string spell(const ScaleConfig& c) {
  return CLEAVE_PRINT_STRUCT(c, rows_a, rows_b, promote);
}

static std::string spell(const EpilogueConfig& config) {
  return CLEAVE_PRINT_STRUCT(config, c, d, bias_dtype, order, activation, bias, has_c, scaling, has_zero, has_scale_d,
                             has_amax);
}

static std::string spell(const StoreConfig& c) {
  return CLEAVE_PRINT_STRUCT(c, by_tma, chunks);
}

std::string gemm_source(const GemmConfig& config) {
  return translation_unit({
      .folder = "kernel",
      .name = family_traits(config.family).kernel,
      .config = "GemmConfig",
      .members =
          CLEAVE_PRINT_MEMBERS(config, family, operands, tile, warps, cluster, schedule, conv, scales, epilogue, store),
      .launch_bounds = "cleave::cta_threads(config), 1",
      .entry = gemm_entry,
      .params = "Params<config>",
  });
}

}  // namespace cleave

#include "jit/source.h"

#include "jit/translation_unit.h"

namespace cleave {

std::string gemm_source(const GemmConfig& config) {
  return translation_unit({
      .folder = "kernel",
      .name = config.family == KernelFamily::sm90 ? "gemm_sm90" : "gemm_portable",
      .config = "GemmConfig",
      .members = CLEAVE_PRINT_MEMBERS(
          config, family, a, b, c, d, bias_dtype, precision, a_major, b_major, d_order, tile_m,
          tile_n, tile_k, stages, consumers, pingpong, warps_m, warps_n, multicast_m, multicast_n,
          grouping, group_capacity, conv, conv_axes, class_capacity, fuses_classes, gather,
          batches_taps, fast_load, fast_store, split, cluster_k, activation, bias, has_c, scaling,
          scale_rows_a, scale_rows_b, promote, has_zero, has_scale_d, has_amax, store_by_tma,
          store_chunks, load_bytes_a, load_bytes_b),
      .launch_bounds = "cleave::cta_threads(config), 1",
      .entry = gemm_entry,
      .params = "Params<config>",
  });
}

}  // namespace cleave

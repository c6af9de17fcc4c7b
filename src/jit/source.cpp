#include "jit/source.h"

#include <fmt/format.h>

#include "jit/spell.h"

namespace cleave {
namespace {

const char* kernel_name(const GemmConfig& config) {
  return config.family == KernelFamily::sm90 ? "gemm_sm90" : "gemm_portable";
}

std::string initialiser(const GemmConfig& config) {
  // Naming every member makes a member added to GemmConfig, and forgotten here, an error of the
  // compiler.
  const auto& [family, a, b, c, d, bias_dtype, precision, a_major, b_major, d_order, tile_m, tile_n,
               tile_k, stages, consumers, pingpong, warps_m, warps_n, multicast_m, multicast_n,
               grouping, group_capacity, conv, conv_axes, class_capacity, side_by_side, gather,
               batches_taps, fast_load, fast_store, split, cluster_k, activation, bias, has_c,
               scaling, scale_rows_a, scale_rows_b, promote, has_zero, has_scale_d, has_amax,
               store_by_tma, store_chunks, load_bytes_a, load_bytes_b] = config;
  std::string text;
#define CLEAVE_PRINT(member) text += fmt::format("    .{} = {},\n", #member, spell(member))
  CLEAVE_PRINT(family);
  CLEAVE_PRINT(a);
  CLEAVE_PRINT(b);
  CLEAVE_PRINT(c);
  CLEAVE_PRINT(d);
  CLEAVE_PRINT(bias_dtype);
  CLEAVE_PRINT(precision);
  CLEAVE_PRINT(a_major);
  CLEAVE_PRINT(b_major);
  CLEAVE_PRINT(d_order);
  CLEAVE_PRINT(tile_m);
  CLEAVE_PRINT(tile_n);
  CLEAVE_PRINT(tile_k);
  CLEAVE_PRINT(stages);
  CLEAVE_PRINT(consumers);
  CLEAVE_PRINT(pingpong);
  CLEAVE_PRINT(warps_m);
  CLEAVE_PRINT(warps_n);
  CLEAVE_PRINT(multicast_m);
  CLEAVE_PRINT(multicast_n);
  CLEAVE_PRINT(grouping);
  CLEAVE_PRINT(group_capacity);
  CLEAVE_PRINT(conv);
  CLEAVE_PRINT(conv_axes);
  CLEAVE_PRINT(class_capacity);
  CLEAVE_PRINT(side_by_side);
  CLEAVE_PRINT(gather);
  CLEAVE_PRINT(batches_taps);
  CLEAVE_PRINT(fast_load);
  CLEAVE_PRINT(fast_store);
  CLEAVE_PRINT(split);
  CLEAVE_PRINT(cluster_k);
  CLEAVE_PRINT(activation);
  CLEAVE_PRINT(bias);
  CLEAVE_PRINT(has_c);
  CLEAVE_PRINT(scaling);
  CLEAVE_PRINT(scale_rows_a);
  CLEAVE_PRINT(scale_rows_b);
  CLEAVE_PRINT(promote);
  CLEAVE_PRINT(has_zero);
  CLEAVE_PRINT(has_scale_d);
  CLEAVE_PRINT(has_amax);
  CLEAVE_PRINT(store_by_tma);
  CLEAVE_PRINT(store_chunks);
  CLEAVE_PRINT(load_bytes_a);
  CLEAVE_PRINT(load_bytes_b);
#undef CLEAVE_PRINT
  return text;
}

}  // namespace

std::string gemm_source(const GemmConfig& config) {
  return fmt::format(R"(#include "cleave/kernel/{0}.h"

constexpr cleave::GemmConfig config = {{
{1}}};

extern "C" __global__ void __launch_bounds__(cleave::block_threads(config), 1)
    {2}(const __grid_constant__ cleave::Params<config> params) {{
  cleave::{0}<config>(params);
}}
)",
                     kernel_name(config), initialiser(config), gemm_entry);
}

}  // namespace cleave

#include "jit/source.h"

#include <fmt/format.h>

namespace cleave {
namespace {

// Enumerators as C++ spells them; cleave/names.h has them as users do.
#define CLEAVE_SPELL(enumerator) \
  case enumerator:               \
    return "cleave::" #enumerator

const char* spell(DType value) {
  switch (value) {
    CLEAVE_SPELL(DType::f16);
    CLEAVE_SPELL(DType::bf16);
    CLEAVE_SPELL(DType::f32);
    CLEAVE_SPELL(DType::i8);
    CLEAVE_SPELL(DType::e4m3);
    CLEAVE_SPELL(DType::e5m2);
    CLEAVE_SPELL(DType::i32);
  }
  return "";
}

const char* spell(SplitKMode value) {
  switch (value) {
    CLEAVE_SPELL(SplitKMode::none);
    CLEAVE_SPELL(SplitKMode::serial);
    CLEAVE_SPELL(SplitKMode::parallel);
    CLEAVE_SPELL(SplitKMode::cluster);
    CLEAVE_SPELL(SplitKMode::stream_k);
    CLEAVE_SPELL(SplitKMode::automatic);
  }
  return "";
}

const char* spell(Activation value) {
  switch (value) {
    CLEAVE_SPELL(Activation::none);
    CLEAVE_SPELL(Activation::relu);
    CLEAVE_SPELL(Activation::gelu_tanh);
    CLEAVE_SPELL(Activation::gelu_erf);
    CLEAVE_SPELL(Activation::silu);
  }
  return "";
}

const char* spell(Bias value) {
  switch (value) {
    CLEAVE_SPELL(Bias::none);
    CLEAVE_SPELL(Bias::row);
    CLEAVE_SPELL(Bias::column);
  }
  return "";
}

const char* spell(Major value) {
  switch (value) {
    CLEAVE_SPELL(Major::k);
    CLEAVE_SPELL(Major::mn);
  }
  return "";
}

const char* spell(Order value) {
  switch (value) {
    CLEAVE_SPELL(Order::row);
    CLEAVE_SPELL(Order::column);
  }
  return "";
}

const char* spell(KernelFamily value) {
  switch (value) {
    CLEAVE_SPELL(KernelFamily::automatic);
    CLEAVE_SPELL(KernelFamily::sm90);
    CLEAVE_SPELL(KernelFamily::portable);
  }
  return "";
}

const char* spell(Scaling value) {
  switch (value) {
    CLEAVE_SPELL(Scaling::none);
    CLEAVE_SPELL(Scaling::vector);
    CLEAVE_SPELL(Scaling::block);
  }
  return "";
}

#undef CLEAVE_SPELL

const char* spell(bool value) {
  return value ? "true" : "false";
}
uint32_t spell(uint32_t value) {
  return value;
}

const char* kernel_name(const GemmConfig& config) {
  return config.family == KernelFamily::sm90 ? "gemm_sm90" : "gemm_portable";
}

std::string initialiser(const GemmConfig& config) {
  // Naming every member makes a member added to GemmConfig, and forgotten here, an error of the
  // compiler.
  const auto& [family, a, b, c, d, bias_dtype, a_major, b_major, d_order, tile_m, tile_n, tile_k,
               stages, consumers, pingpong, warps_m, warps_n, multicast_m, multicast_n, split,
               cluster_k, activation, bias, has_c, scaling, scale_rows_a, scale_rows_b, promote,
               has_zero, has_scale_d, has_amax, store_by_tma, load_bytes_a, load_bytes_b] =
      config;
  std::string text;
#define CLEAVE_PRINT(member) text += fmt::format("    .{} = {},\n", #member, spell(member))
  CLEAVE_PRINT(family);
  CLEAVE_PRINT(a);
  CLEAVE_PRINT(b);
  CLEAVE_PRINT(c);
  CLEAVE_PRINT(d);
  CLEAVE_PRINT(bias_dtype);
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
    {2}(const __grid_constant__ cleave::GemmParams params) {{
  cleave::{0}<config>(params);
}}
)",
                     kernel_name(config), initialiser(config), gemm_entry);
}

}  // namespace cleave

#include "jit/source.h"

#include <gtest/gtest.h>

#include <string>

#include "jit/compiler.h"
#include "jit/nvrtc.h"

namespace cleave {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Every member differs from its default.
constexpr GemmConfig unusual = {.family = KernelFamily::portable,
                                .a = DType::e4m3,
                                .b = DType::e5m2,
                                .c = DType::f32,
                                .d = DType::f16,
                                .bias_dtype = DType::f32,
                                .precision = Precision::ieee,
                                .a_major = Major::mn,
                                .b_major = Major::mn,
                                .d_order = Order::column,
                                .tile_m = 64,
                                .tile_n = 256,
                                .tile_k = 32,
                                .stages = 3,
                                .consumers = 1,
                                .pingpong = true,
                                .warps_m = 1,
                                .warps_n = 8,
                                .multicast_m = 2,
                                .multicast_n = 4,
                                .split = SplitKMode::stream_k,
                                .cluster_k = 8,
                                .activation = Activation::gelu_erf,
                                .bias = Bias::column,
                                .has_c = true,
                                .scaling = Scaling::block,
                                .scale_rows_a = 128,
                                .scale_rows_b = 128,
                                .promote = true,
                                .has_zero = true,
                                .has_scale_d = true,
                                .has_amax = true,
                                .store_by_tma = false,
                                .store_chunks = 1,
                                .load_bytes_a = 4,
                                .load_bytes_b = 2};

TEST(Source, ReadsLikeSource) {
  const std::string text = gemm_source(GemmConfig());
  EXPECT_TRUE(text.starts_with("#include \"cleave/kernel/gemm_sm90.h\"\n")) << text;
  EXPECT_TRUE(contains(text, "    .family = cleave::KernelFamily::sm90,\n")) << text;
  EXPECT_TRUE(contains(text, "    .a_major = cleave::Major::k,\n")) << text;
  EXPECT_TRUE(contains(text, "    .tile_m = 128,\n")) << text;
  EXPECT_TRUE(contains(text, "    .has_c = false,\n")) << text;
  EXPECT_TRUE(contains(text, "cleave::gemm_sm90<config>(params);")) << text;
  EXPECT_TRUE(contains(text, gemm_entry)) << text;
  EXPECT_EQ(text, gemm_source(GemmConfig()));
}

TEST(Source, ThePortableKernelHasItsOwnHeader) {
  const std::string text = gemm_source(unusual);
  EXPECT_TRUE(contains(text, "\"cleave/kernel/gemm_portable.h\"")) << text;
  EXPECT_TRUE(contains(text, "cleave::gemm_portable<config>(params);")) << text;
}

// The compiler is the judge of whether the printed constant equals the configuration.
TEST(Source, TheConstantEqualsTheConfiguration) {
  if (!nvrtc_available()) GTEST_SKIP() << "NVRTC was not found";
  const auto constant_of = [](const GemmConfig& config, const std::string& name) {
    const std::string text = gemm_source(config);
    const size_t begin = text.find("{"), end = text.find("};");
    return "constexpr cleave::GemmConfig " + name + " = " + text.substr(begin, end - begin) +
           "};\n";
  };
  const std::string source = "#include \"cleave/config/gemm_config.h\"\n" +
                             constant_of(unusual, "unusual") + constant_of({}, "plain") +
                             "static_assert(plain == cleave::GemmConfig());\n"
                             "static_assert(unusual.load_bytes_b == 2 && !unusual.store_by_tma);\n"
                             "static_assert(unusual.split == cleave::SplitKMode::stream_k);\n"
                             "extern \"C\" __global__ void empty() {}\n";
  EXPECT_NO_THROW(compile_uncached(source, "sm_80")) << source;
}

}  // namespace
}  // namespace cleave

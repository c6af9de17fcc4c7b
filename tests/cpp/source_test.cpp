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
constexpr GemmConfig unusual = {
    .family = KernelFamily::portable,
    .operands = {.a = DType::e4m3,
                 .b = DType::e5m2,
                 .a_major = Major::mn,
                 .b_major = Major::mn,
                 .precision = Precision::ieee,
                 .copied_a = true,
                 .copied_b = true,
                 .load_bytes_a = 4,
                 .load_bytes_b = 2},
    .tile = {.m = 64, .n = 256, .k = 32, .stages = 3},
    .warps = {.consumers = 1, .pingpong = true, .m = 1, .n = 8},
    .cluster = {.multicast_m = 2, .multicast_n = 4, .k = 8},
    .schedule = {.split = SplitKMode::stream_k, .grouping = Grouping::k, .group_capacity = 16},
    .conv = {.kind = Conv::dgrad,
             .axes = 3,
             .class_capacity = 4,
             .fuses_classes = true,
             .patches = true,
             .gather = true,
             .batches_taps = true,
             .half_lines = true,
             .fast_load = false,
             .fast_store = false},
    .direct = {.vector = 4,
               .group = 2,
               .strips = 8,
               .pixels = 64,
               .height = {.taps = 3, .stride = 2, .dilation = 5, .phase = 1},
               .width = {.taps = 4, .stride = 3, .dilation = 2, .phase = 2}},
    .scales = {.rows_a = 128, .rows_b = 128, .promote = true},
    .epilogue = {.c = DType::f32,
                 .d = DType::f16,
                 .bias_dtype = DType::f32,
                 .order = Order::column,
                 .bias = Bias::column,
                 .has_c = true,
                 .scaling = Scaling::block,
                 .has_zero = true,
                 .has_scale_d = true,
                 .has_amax = true,
                 .has_scale_out = true,
                 .ue8m0 = true},
    .store = {.by_tma = false, .chunks = 1, .run_bytes = 8}};

TEST(Source, ReadsLikeSource) {
  const std::string text = gemm_source(GemmConfig());
  EXPECT_TRUE(text.starts_with("#include \"cleave/kernel/gemm_sm90.h\"\n")) << text;
  EXPECT_TRUE(contains(text, "    .family = cleave::KernelFamily::sm90,\n")) << text;
  EXPECT_TRUE(contains(text, "    .operands = {\n        .a = cleave::DType::bf16,\n")) << text;
  EXPECT_TRUE(contains(text, "    .tile = {\n        .m = 128,\n")) << text;
  EXPECT_TRUE(contains(text, "        .has_c = false,\n")) << text;
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
    return "constexpr cleave::GemmConfig " + name + " = " + text.substr(begin, end - begin) + "};\n";
  };
  const std::string source = "#include \"cleave/config/gemm_config.h\"\n" + constant_of(unusual, "unusual") +
                             constant_of({}, "plain") +
                             "static_assert(plain == cleave::GemmConfig());\n"
                             "static_assert(unusual.operands.load_bytes_b == 2 && !unusual.store.by_tma);\n"
                             "static_assert(unusual.schedule.split == cleave::SplitKMode::stream_k);\n"
                             "extern \"C\" __global__ void empty() {}\n";
  EXPECT_NO_THROW(compile_uncached(source, "sm_80")) << source;
}

}  // namespace
}  // namespace cleave

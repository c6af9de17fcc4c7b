#include "jit/source.h"

#include <gtest/gtest.h>

#include <string>

#include "cleave/error.h"
#include "cleave/names.h"
#include "jit/compiler.h"
#include "jit/nvrtc.h"

namespace cleave {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Every member differs from its default.
constexpr GemmConfig unusual = {.family = KernelFamily::portable,
                                .a = DType::f16,
                                .c = DType::f32,
                                .d = DType::f16,
                                .bias_dtype = DType::f32,
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
                                .store_by_tma = false,
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
  const std::string source = "#include \"cleave/kernel/gemm_config.h\"\n" +
                             constant_of(unusual, "unusual") + constant_of({}, "plain") +
                             "static_assert(plain == cleave::GemmConfig());\n"
                             "static_assert(unusual.load_bytes_b == 2 && !unusual.store_by_tma);\n"
                             "static_assert(unusual.split == cleave::SplitKMode::stream_k);\n"
                             "extern \"C\" __global__ void empty() {}\n";
  EXPECT_NO_THROW(compile_uncached(source, "sm_80")) << source;
}

template <class Enum>
void expect_round_trip(int count) {
  for (int i = 0; i < count; ++i) {
    const auto value = Enum(i);
    EXPECT_NE(to_string(value), "unknown");
    EXPECT_EQ(from_string<Enum>(to_string(value)), value);
  }
  EXPECT_EQ(to_string(Enum(count)), "unknown");
}

TEST(Names, RoundTrip) {
  expect_round_trip<DType>(3);
  expect_round_trip<SplitKMode>(6);
  expect_round_trip<Activation>(5);
  expect_round_trip<Bias>(3);
  expect_round_trip<Major>(2);
  expect_round_trip<Order>(2);
  expect_round_trip<KernelFamily>(3);
}

TEST(Names, AreWhatUsersType) {
  EXPECT_EQ(to_string(DType::bf16), "bfloat16");
  EXPECT_EQ(to_string(SplitKMode::automatic), "auto");
  EXPECT_EQ(to_string(SplitKMode::stream_k), "stream_k");
  EXPECT_EQ(to_string(Activation::gelu_erf), "gelu");
  EXPECT_EQ(to_string(Activation::gelu_tanh), "gelu_tanh");
  EXPECT_EQ(to_string(Bias::column), "column");
  EXPECT_EQ(to_string(KernelFamily::sm90), "sm90");
}

TEST(Names, AnUnknownNameListsTheKnownOnes) {
  try {
    from_string<SplitKMode>("paralel");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_STREQ(error.what(),
                 "split_k_mode is \"paralel\"; it must be one of none, serial, parallel, cluster, "
                 "stream_k, auto");
  }
  try {
    from_string<DType>("int8");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_type);
  }
}

}  // namespace
}  // namespace cleave

#include "jit/nvrtc.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "cleave/error.h"
#include "jit/compiler.h"

namespace cleave {
namespace {

constexpr const char* scale_kernel = R"(
#include "cleave/core/math.h"
extern "C" __global__ void __launch_bounds__(128) scale(float* x, uint32_t n) {
  __shared__ float tile[256];
  const uint32_t i = cleave::min_of(blockIdx.x * 128 + threadIdx.x, n - 1);
  tile[threadIdx.x] = x[i];
  __syncthreads();
  x[i] = 2 * tile[127 - threadIdx.x];
}
)";

class NvrtcTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!nvrtc_available()) GTEST_SKIP() << "NVRTC was not found";
  }
};

TEST_F(NvrtcTest, CompilesWithEmbeddedHeadersForEveryArchitecture) {
  for (const char* arch : {"sm_80", "sm_90a"}) {
    const CompiledKernel kernel = compile_uncached(scale_kernel, arch);
    EXPECT_EQ(kernel.cubin.substr(1, 3), "ELF") << arch;
    EXPECT_GT(kernel.resources.registers, 0u);
    EXPECT_LE(kernel.resources.registers, 64u);
    EXPECT_EQ(kernel.resources.spill_store_bytes, 0u);
    EXPECT_GE(kernel.resources.static_shared_bytes, 1024u);
    EXPECT_GT(kernel.seconds, 0);
    EXPECT_FALSE(kernel.from_cache);
  }
}

TEST_F(NvrtcTest, ReportsSpills) {
  // 200 live values cannot fit in the 32 registers that 2048 resident threads leave each of them.
  const CompiledKernel kernel = compile_uncached(R"(
extern "C" __global__ void __launch_bounds__(1024, 2) crowd(float* x) {
  float a[200];
  _Pragma("unroll") for (int i = 0; i < 200; ++i) a[i] = x[i * 2048 + threadIdx.x];
  __syncthreads();
  _Pragma("unroll") for (int i = 0; i < 200; ++i) x[i * 2048 + threadIdx.x] = a[i] * a[199 - i];
}
)",
                                                 "sm_90a");
  EXPECT_LE(kernel.resources.registers, 32u);
  EXPECT_GT(kernel.resources.spill_store_bytes, 0u);
  EXPECT_GT(kernel.resources.spill_load_bytes, 0u);
}

TEST_F(NvrtcTest, AnErrorQuotesTheLog) {
  try {
    compile_uncached("extern \"C\" __global__ void broken() { undeclared = 1; }", "sm_80");
    FAIL() << "compiled";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::compiler);
    EXPECT_NE(std::string(error.what()).find("undeclared"), std::string::npos) << error.what();
  }
}

TEST_F(NvrtcTest, AnUnknownArchitectureIsAnError) {
  EXPECT_THROW(compile_uncached(scale_kernel, "sm_1"), Error);
}

TEST_F(NvrtcTest, SaysWhatItIs) {
  EXPECT_GE(nvrtc_version().major, 12);
  EXPECT_NE(nvrtc_path().find("libnvrtc"), std::string::npos);
}

TEST(ParseResources, ReadsTheStatisticsOfPtxas) {
  const KernelResources resources = parse_resources(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'cleave_gemm' for 'sm_90a'\n"
      "ptxas info    : Function properties for cleave_gemm\n"
      "ptxas         .     256 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 9 barriers, 256 bytes cumulative stack size, 1040 "
      "bytes smem\n"
      "ptxas info    : Function properties for helper\n"
      "    0 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n");
  EXPECT_EQ(resources, (KernelResources{.registers = 168,
                                        .stack_bytes = 256,
                                        .spill_store_bytes = 16,
                                        .spill_load_bytes = 20,
                                        .static_shared_bytes = 1040}));
  EXPECT_EQ(parse_resources(""), KernelResources());
  EXPECT_EQ(parse_resources(" registers\nline 12\nregisters registers"), KernelResources());
}

// In a process of its own, since NVRTC is loaded once and for all.
TEST(NvrtcDeathTest, AMissingLibraryNamesTheRemedy) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("CLEAVE_NVRTC", "/nowhere/libnvrtc.so", 1);
        try {
          nvrtc_version();
        } catch (const Error& error) {
          fputs(error.what(), stderr);
          _exit(error.code() == ErrorCode::compiler && !nvrtc_available() ? 0 : 1);
        }
        _exit(2);
      },
      testing::ExitedWithCode(0), "pip install nvidia-cuda-nvrtc.*/nowhere/libnvrtc.so");
}

}  // namespace
}  // namespace cleave

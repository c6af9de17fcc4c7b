// Every kernel that the planner can choose, compiled for the architectures it serves: none spills
// registers or keeps an array in local memory, and none has its WGMMAs serialised by ptxas.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "cleave/device.h"
#include "jit/compiler.h"
#include "jit/nvrtc.h"
#include "jit/source.h"
#include "plan/catalogue.h"

namespace cleave {
namespace {

void compile_all(const DeviceInfo& device, const std::string& arch) {
  if (!nvrtc_available()) GTEST_SKIP() << "NVRTC is not installed: pip install nvidia-cuda-nvrtc";
  const std::vector<GemmConfig> configs = all_configs(device);
  ASSERT_GT(configs.size(), 20u);
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  const auto work = [&] {
    for (size_t i; (i = next++) < configs.size();) {
      const std::string source = gemm_source(configs[i]);
      std::string problem;
      try {
        const CompiledKernel kernel = compile(source, arch);
        if (kernel.resources.spill_store_bytes + kernel.resources.spill_load_bytes > 0)
          problem = "spills";
        if (kernel.resources.stack_bytes > 0) problem = "keeps an array in local memory";
        if (kernel.log.find("serialized") != std::string::npos)
          problem = "its WGMMAs are serialised";
      } catch (const std::exception& error) {
        problem = error.what();
      }
      const std::lock_guard lock(mutex);
      EXPECT_EQ(problem, "") << arch << "\n" << source;
    }
  };
  std::vector<std::jthread> threads(std::max(1u, std::thread::hardware_concurrency()));
  for (std::jthread& thread : threads) thread = std::jthread(work);
}

TEST(Kernels, EveryHopperKernelCompilesWithoutSpills) {
  compile_all(device_info(kPlanOnlyH100), "sm_90a");
}

TEST(Kernels, EveryAmpereKernelCompilesWithoutSpills) {
  DeviceInfo a100 = device_info(kPlanOnlyH100);
  a100.compute_capability = 80;
  a100.shared_memory_per_block = 163 * 1024;
  compile_all(a100, "sm_80");
}

}  // namespace
}  // namespace cleave

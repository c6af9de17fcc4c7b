// The kernels that the planner can choose, compiled for the architectures they serve: none spills
// registers or keeps an array in local memory, and none has its WGMMAs serialised by ptxas. A sample
// of them as a rule; all of them, which takes twenty minutes of one core, by `make test-kernels`.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <mutex>
#include <set>
#include <thread>

#include "all_kernels/all_configs.h"
#include "cleave/config/clusters.h"
#include "cleave/config/dependent_launch.h"
#include "cleave/config/staged_c.h"
#include "cleave/device.h"
#include "cleave/epilogue.h"
#include "cleave/gemm.h"
#include "expect_no_spills.h"
#include "jit/compiler.h"
#include "jit/nvrtc.h"
#include "jit/source.h"
#include "kernel_sample.h"
#include "plan/choice/choice.h"
#include "plan/choice/spec.h"

namespace cleave {
namespace {

DeviceInfo hopper() {
  return device_info(kPlanOnlyH100);
}

DeviceInfo ampere() {
  DeviceInfo a100 = device_info(kPlanOnlyH100);
  a100.compute_capability = 80;
  a100.shared_memory_per_block = 163 * 1024;
  return a100;
}

void compile_all(const std::vector<GemmConfig>& configs, const std::string& arch, size_t least = 20) {
  if (!nvrtc_available()) GTEST_SKIP() << "NVRTC is not installed: pip install nvidia-cuda-nvrtc";
  ASSERT_GT(configs.size(), least);
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  const auto work = [&] {
    for (size_t i; (i = next++) < configs.size();) {
      const std::string source = gemm_source(configs[i]);
      std::string problem;
      try {
        const CompiledKernel kernel = compile(source, arch);
        if (kernel.resources.spill_store_bytes + kernel.resources.spill_load_bytes > 0) problem = "spills";
        if (kernel.resources.stack_bytes > 0) problem = "keeps an array in local memory";
        if (reads_configuration(kernel)) problem = "reads its configuration when it runs";
        if (kernel.log.find("serialized") != std::string::npos) problem = "its WGMMAs are serialised";
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

/// Kernels of a decoder's layers in 8 and 16 bits with static weights, some of them A: their loads leave early.
std::vector<GemmConfig> static_configs() {
  std::vector<GemmConfig> configs;
  const std::pair<int64_t, int64_t> layers[] = {{6144, 4096}, {4096, 4096}, {14336, 4096}, {4096, 14336}};
  for (const DType type : {DType::e4m3, DType::i8, DType::bf16}) {
    for (const int64_t m : {16, 64, 256, 2048}) {
      for (const auto& [n, k] : layers) {
        GemmProblem p{.m = m, .n = n, .k = k, .static_b = true, .device = kPlanOnlyH100};
        p.epilogue = epilogue_of(n == 14336 ? Activation::swiglu : Activation::none);
        p.fast_accumulation = type == DType::e4m3;
        p.a = {.dtype = type, .stride_row = k};
        p.b = {.dtype = type, .stride_row = 1, .stride_col = k};
        p.c = p.d = {.stride_row = n};
        if (type != DType::bf16) p.scale_a = p.scale_b = {.kind = Scaling::vector, .stride_row = 1};
        const auto planned = make_choice(p, hopper(), *parse_spec(plan(p)->kernel_name()));
        const OperandConfig& operands = planned.value().config.operands;
        if (operands.static_a || operands.static_b) configs.push_back(planned->config);
      }
    }
  }
  return configs;
}

/// What Hopper serves, and Ampere does not: for a sample it is enough to compile portable kernels once. Also with
/// static operands.
std::vector<GemmConfig> hopper_configs() {
  std::set<std::string> of_ampere;
  for (const GemmConfig& config : all_configs(ampere())) of_ampere.insert(gemm_source(config));
  std::vector<GemmConfig> configs = all_configs(hopper());
  std::erase_if(configs, [&](const GemmConfig& config) { return of_ampere.contains(gemm_source(config)); });
  // Where CTAs share loads, A and B in turn are static.
  for (size_t i = 0, planned = configs.size(); i < planned; ++i) {
    GemmConfig config = configs[i];
    if (sharers(config) == 1 || !may_load_early(config)) continue;
    (i % 2 == 0 ? config.operands.static_a : config.operands.static_b) = true;
    configs.push_back(config);
  }
  std::ranges::copy(static_configs(), std::back_inserter(configs));
  return configs;
}

TEST(Kernels, SampleForHopperCompilesWithoutSpills) {
  compile_all(kernel_sample(hopper_configs()), "sm_90a");
}

/// Beside C the most accumulators, in two waves, whatever else: of these the sample has few.
TEST(Kernels, CBesideTwoWavesCompilesWithoutSpills) {
  std::vector<GemmConfig> configs = all_configs(hopper());
  std::erase_if(configs, [](const GemmConfig& c) {
    const bool whole = c.schedule.grouping == Grouping::none && !has_weights(c);
    const bool plain = whole && !c.epilogue.function.given && sharers(c) == 1 && c.epilogue.bias == Bias::none;
    return !plain || !c.epilogue.has_c || !has_two_waves(c) || accumulators(c) < 128;
  });
  compile_all(configs, "sm_90a");
}

/// What comes through shared memory stands in registers beside the sums.
TEST(Kernels, StagedCCompilesWithoutSpills) {
  std::vector<GemmConfig> configs = all_configs(hopper());
  std::erase_if(configs, [](const GemmConfig& c) { return !stages_c(c); });
  compile_all(configs, "sm_90a");
}

/// The most accumulators, with two ways out: what is added leaves by TMA, else threads store it. And producers with the
/// fewest registers, beside whom loads are shared.
TEST(Kernels, AddedSumsCompileWithoutSpills) {
  std::vector<GemmConfig> configs = all_configs(hopper());
  std::erase_if(configs, [](const GemmConfig& c) {
    const bool few = may_load_scale_lines(c) && sharers(c) > 1;
    return !c.store.adds || !(few || accumulators(c) >= 96);
  });
  compile_all(configs, "sm_90a", 10);
}

/// Beside 152 columns, whose sums leave all at once, stand the scales of all of them.
TEST(Kernels, AddedSumsOfOddEightsCompileWithoutSpills) {
  std::vector<GemmConfig> configs = all_configs(hopper());
  std::erase_if(configs, [](const GemmConfig& c) { return !c.store.adds || c.tile.n % 16 != 8; });
  compile_all(configs, "sm_90a", 1);
}

/// The producer keeps the place of each strip, beside whom it shares loads with and where tiles are cut.
TEST(Kernels, SharedStripsOfCutTilesCompileWithoutSpills) {
  std::vector<GemmConfig> configs = all_configs(hopper());
  std::erase_if(configs, [](const GemmConfig& c) {
    const bool strips = c.operands.a_major == Major::mn && c.operands.b_major == Major::mn;
    const bool product = c.schedule.grouping == Grouping::none && c.conv.kind == Conv::none && !c.epilogue.has_c;
    const bool plain = product && c.epilogue.order == Order::row && sharers(c) > 1;
    return !strips || !plain || c.schedule.split != SplitKMode::stream_k || accumulators(c) < 80;
  });
  compile_all(configs, "sm_90a");
}

TEST(Kernels, SampleForAmpereCompilesWithoutSpills) {
  compile_all(kernel_sample(all_configs(ampere())), "sm_80");
}

TEST(Kernels, DISABLED_AllForHopperCompileWithoutSpills) {
  compile_all(all_configs(hopper()), "sm_90a");
}

TEST(Kernels, DISABLED_AllForAmpereCompileWithoutSpills) {
  compile_all(all_configs(ampere()), "sm_80");
}

TEST(KernelSample, HasEveryTwoSettingsOnTheLargestTileThatHasBoth) {
  const std::vector<GemmConfig> all = hopper_configs();
  const std::vector<GemmConfig> sample = kernel_sample(all);
  EXPECT_LT(sample.size(), all.size() / 10);
  // Both at once: settings have the same numbers in both then.
  std::vector<GemmConfig> both = all;
  both.insert(both.end(), sample.begin(), sample.end());
  const auto pairs = settings_by_two(both, common_settings(all));
  const auto sampled = pairs.begin() + ptrdiff_t(all.size());
  const auto of_all = most_accumulators(all, {pairs.begin(), sampled});
  EXPECT_GT(of_all.size(), 1000u);
  EXPECT_EQ(most_accumulators(sample, {sampled, pairs.end()}), of_all);
}

TEST(KernelSample, HasEveryTileAndTheWidestWithEachFamilyOfTypes) {
  const std::vector<GemmConfig> all = hopper_configs();
  const std::vector<GemmConfig> sample = kernel_sample(all);
  std::set<decltype(tile_of({}))> of_all, of_sample;
  for (const GemmConfig& config : all) of_all.insert(tile_of(config));
  for (const GemmConfig& config : sample) of_sample.insert(tile_of(config));
  EXPECT_GT(of_all.size(), 40u);
  EXPECT_EQ(of_sample, of_all);
  EXPECT_GT(widest_tiles(all).size(), 20u);
  EXPECT_EQ(widest_tiles(sample), widest_tiles(all));
}

}  // namespace
}  // namespace cleave

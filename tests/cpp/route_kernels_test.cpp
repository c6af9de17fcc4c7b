// The router's kernel: how the work is dealt to threads, and that NVRTC makes it without spills.

#include <gtest/gtest.h>

#include <set>

#include "cleave/device.h"
#include "expect_no_spills.h"
#include "jit/compiler.h"
#include "jit/nvrtc.h"
#include "route/launches.h"
#include "route/problem.h"

namespace cleave {
namespace {

RouteProblem problem_of(int64_t tokens, int64_t experts, int64_t top_k) {
  return {.tokens = tokens,
          .experts = experts,
          .top_k = top_k,
          .logits = {.dtype = DType::f32, .stride_row = experts},
          .device = kPlanOnlyH100};
}

TEST(RouteLaunches, EachTokenHasAWarp) {
  EXPECT_TRUE(route_launches(problem_of(0, 8, 2)).empty());
  for (const int64_t tokens : {1, 4, 5, 129}) {
    const auto launches = route_launches(problem_of(tokens, 8, 2));
    ASSERT_EQ(launches.size(), 1u);
    const LaunchShape& shape = launches[0].shape;
    EXPECT_GE(shape.grid.x * shape.block.x, tokens * 32);
    EXPECT_LT((shape.grid.x - 1) * shape.block.x, tokens * 32);
  }
}

TEST(RouteLaunches, LanesHaveAllExperts) {
  for (int64_t experts = 1; experts <= kMostRoutedExperts; ++experts) {
    const uint32_t per_lane = config_of(problem_of(1, experts, 1)).per_lane;
    EXPECT_GE(32 * per_lane, experts);
    EXPECT_TRUE(per_lane == 1 || 16 * per_lane < experts);
  }
}

TEST(RouteLaunches, WhatDoesNotMatterMakesNoKernel) {
  const RouteProblem plain = problem_of(9, 64, 4);
  RouteProblem all_groups = plain;
  all_groups.n_group = all_groups.topk_group = 8;
  all_groups.group_score = GroupScore::max;
  all_groups.routed_scaling_factor = 2.5f;
  EXPECT_EQ(config_of(plain), config_of(all_groups));
}

TEST(RouteSource, TheConstantEqualsTheConfiguration) {
  if (!nvrtc_available()) GTEST_SKIP() << "NVRTC is not installed: pip install nvidia-cuda-nvrtc";
  const RouteConfig unusual{.type = DType::bf16,
                            .per_lane = 16,
                            .scoring_func = ScoringFunc::sigmoid,
                            .has_bias = true,
                            .has_groups = true,
                            .group_score = GroupScore::top2_sum,
                            .renormalize = false};
  const std::string text = translation_unit(RouteKernel::choose, unusual);
  const size_t begin = text.find("{"), end = text.find("};");
  const std::string source =
      "#include \"cleave/route/route_config.h\"\n"
      "constexpr cleave::RouteConfig unusual = " +
      text.substr(begin, end - begin) +
      "};\n"
      "static_assert(unusual == cleave::RouteConfig{cleave::DType::bf16, 16, cleave::ScoringFunc::sigmoid, true, true, "
      "cleave::GroupScore::top2_sum, false});\n"
      "extern \"C\" __global__ void empty() {}\n";
  EXPECT_NO_THROW(compile_uncached(source, "sm_80")) << source;
}

/// The most registers, and each branch.
std::set<std::string> typical_sources() {
  std::set<std::string> sources;
  const auto add = [&](const RouteProblem& p) {
    for (const RouteLaunch& launch : route_launches(p)) sources.insert(translation_unit(launch.kernel, launch.config));
  };
  add(problem_of(64, 128, 8));
  RouteProblem deepseek = problem_of(64, 512, 8);
  deepseek.scoring_func = ScoringFunc::sigmoid;
  deepseek.has_bias = true;
  deepseek.n_group = 8;
  deepseek.topk_group = 4;
  add(deepseek);
  RouteProblem softmax = problem_of(64, 512, 8);
  softmax.logits.dtype = DType::bf16;
  softmax.renormalize = false;
  softmax.n_group = 8;
  softmax.topk_group = 3;
  softmax.group_score = GroupScore::max;
  add(softmax);
  return sources;
}

TEST(RouteKernels, CompileForHopperWithoutSpills) {
  expect_no_spills(typical_sources(), "sm_90a");
}

TEST(RouteKernels, CompileForAmpereWithoutSpills) {
  expect_no_spills(typical_sources(), "sm_80");
}

}  // namespace
}  // namespace cleave

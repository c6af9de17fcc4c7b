// The kernel of router's logits: how the work is dealt to CTAs, and that NVRTC makes it without spills.

#include <gtest/gtest.h>

#include <set>

#include "cleave/device.h"
#include "expect_no_spills.h"
#include "route/logits_launches.h"
#include "route/logits_problem.h"

namespace cleave {
namespace {

RouterLogitsProblem problem_of(int64_t tokens, int64_t experts, int64_t features, DType x = DType::bf16,
                               DType weight = DType::f32) {
  return {.tokens = tokens,
          .experts = experts,
          .features = features,
          .x = {.dtype = x, .stride_row = features, .alignment = 16},
          .weight = {.dtype = weight, .stride_row = features, .alignment = 16},
          .device = kPlanOnlyH100};
}

TEST(RouterLogits, CtasHaveAllLogits) {
  EXPECT_TRUE(logits_launches(problem_of(0, 8, 64)).empty());
  EXPECT_TRUE(logits_launches(problem_of(8, 0, 64)).empty());
  for (const int64_t tokens : {1, 2, 3, 8, 9, 64, 513}) {
    for (const int64_t experts : {1, 8, 127, 128, 256, 513}) {
      const auto launch = logits_launches(problem_of(tokens, experts, 64)).at(0);
      const int64_t of_experts = launch.params.expert_ctas.divisor, of_tokens = launch.shape.grid.x / of_experts;
      EXPECT_EQ(of_experts * of_tokens, launch.shape.grid.x);
      EXPECT_GE(of_experts * launch.config.experts, experts);
      EXPECT_LT((of_experts - 1) * launch.config.experts, experts);
      EXPECT_GE(of_tokens * launch.config.tokens, tokens);
      EXPECT_LT((of_tokens - 1) * launch.config.tokens, tokens);
      EXPECT_LE(launch.config.tokens * launch.config.experts, launch.shape.block.x);
    }
  }
}

TEST(RouterLogits, VectorsNeedLinesThatBeginAtTheirMultiples) {
  EXPECT_TRUE(config_of(problem_of(2, 8, 64)).vectors);
  EXPECT_FALSE(config_of(problem_of(2, 8, 66)).vectors);
  EXPECT_FALSE(config_of(problem_of(1, 1, 66)).vectors) << "its end is half a lane's";
  RouterLogitsProblem one = problem_of(1, 1, 64);
  one.x.stride_row = one.weight.stride_row = 65;
  EXPECT_TRUE(config_of(one).vectors) << "one line each";
  RouterLogitsProblem odd = problem_of(2, 8, 64);
  odd.x.alignment = 4;
  EXPECT_FALSE(config_of(odd).vectors);
  odd.x.alignment = 8;
  EXPECT_TRUE(config_of(odd).vectors);
}

/// The most registers, and each branch.
std::set<std::string> typical_sources() {
  std::set<std::string> sources;
  for (const DType x : {DType::bf16, DType::f32}) {
    for (const int64_t tokens : {1, 8}) {
      for (const int64_t experts : {1, 512}) {
        RouterLogitsProblem p = problem_of(tokens, experts, 6144, x, tokens == 1 ? DType::f32 : x);
        p.static_weight = tokens != experts;
        for (const LogitsLaunch& launch : logits_launches(p))
          sources.insert(translation_unit(launch.kernel, launch.config));
      }
    }
  }
  sources.insert(translation_unit(LogitsKernel::logits, {.tokens = 8, .experts = 4, .vectors = false}));
  return sources;
}

TEST(RouterLogits, KernelsOfHopperDoNotSpill) {
  expect_no_spills(typical_sources(), "sm_90a", 128);
}

TEST(RouterLogits, KernelsOfAmpereDoNotSpill) {
  expect_no_spills(typical_sources(), "sm_80", 128);
}

}  // namespace
}  // namespace cleave

#include "plan/plans/quantize_apart.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cleave/config/output.h"
#include "cleave/config/smem_plan.h"
#include "cleave/device.h"
#include "gemm_problems.h"
#include "plan/catalogue/candidates.h"
#include "problem/problem.h"

namespace cleave {
namespace {

/// The first product of an MLP: its gates, and D in 8 bits by scales that are found.
GemmProblem layer(int64_t m, int64_t n, int64_t k) {
  GemmProblem p{.m = m, .n = n, .k = k, .a = row_major(k), .b = column_major(k), .d = row_major(n, 0, DType::e4m3)};
  p.c = p.d;
  p.epilogue = epilogue_of(Activation::swiglu);
  p.scale_out = {.kind = Scaling::block, .stride_row = 1, .stride_k = m};
  p.device = kPlanOnlyH200;
  return p;
}

std::optional<Choice> choose(const GemmProblem& p, const char* spec) {
  return make_choice(p, device_info(p.device), *parse_spec(spec));
}

TEST(QuantizeApart, WorkspaceHoldsTheProductsResult) {
  const GemmProblem p = layer(30, 640, 512);
  ASSERT_TRUE(validate(p).empty());
  const auto whole = choose(p, "sm90 64x128 apart parallel 2"), halves = choose(p, "sm90 64x128 apart halves");
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->problem.d.dtype, DType::f32);
  EXPECT_EQ(activation_of(whole->problem), Activation::swiglu);
  EXPECT_EQ(whole->config.epilogue.has_scale_out, false);
  const size_t d = 4 * 30 * 640;
  EXPECT_GE(whole->workspace_bytes(), whole->counter_bytes + whole->partial_bytes + d);
  EXPECT_GT(whole->partial_bytes, 0u);
  ASSERT_TRUE(halves.has_value());
  EXPECT_EQ(halves->problem.n, 2 * p.n);
  EXPECT_EQ(activation_of(halves->problem), Activation::none);
  EXPECT_GE(halves->workspace_bytes(), 2 * d);
  EXPECT_FALSE(choose(p, "sm90 64x128 halves").has_value());
  EXPECT_TRUE(choose(p, "sm90 64x16 transposed apart halves").has_value());
  EXPECT_FALSE(choose(p, "sm90 64x16 transposed apart").has_value()) << "a gate joins columns";
}

TEST(QuantizeApart, FewTokensTakeTwoLaunches) {
  const GemmProblem p = layer(16, 2048, 7168);
  const auto best = cheapest(p, device_info(p.device), Kernels::all).choice;
  EXPECT_TRUE(best->spec.apart && best->spec.halves) << to_string(best->spec);
  const auto planned = plan(p);
  EXPECT_NE(planned->why().find("a kernel behind it joins gates and ups, and quantises D"), std::string::npos)
      << planned->why();
  EXPECT_EQ(planned->kernel_sources().size(), 2u);
  EXPECT_GE(planned->workspace_size(), size_t(4 * 16 * 2 * 2048));
}

/// What a kernel of its own would do otherwise than one kernel, and what a caller asks of that one.
TEST(QuantizeApart, OneKernelWhereItMustBe) {
  const auto is_apart = [](const GemmProblem& p) {
    const auto all = candidates(p, device_info(p.device));
    return std::ranges::any_of(all, [](const Choice& choice) { return choice.spec.apart; });
  };
  const GemmProblem p = layer(16, 2048, 1024);
  EXPECT_TRUE(is_apart(p));
  const auto changed = [&](const auto& change) {
    GemmProblem other = p;
    change(other);
    EXPECT_TRUE(validate(other).empty());
    return is_apart(other);
  };
  EXPECT_FALSE(changed([](GemmProblem& x) { x.has_amax = true; }));
  EXPECT_FALSE(changed([](GemmProblem& x) { x.split_k_mode = SplitKMode::parallel; }));
  EXPECT_TRUE(changed([](GemmProblem& x) { x.split_k_mode = SplitKMode::cluster; })) << "no kernel joins gates so";
  EXPECT_FALSE(changed([](GemmProblem& x) { x.deterministic = Determinism::batch_invariant; }));
  EXPECT_FALSE(changed([](GemmProblem& x) {
    x.batch = 3;
    x.d.stride_batch = x.m * x.n;
    x.scale_out = {.kind = Scaling::block, .stride_row = 16, .stride_k = 1, .stride_batch = x.m * 16};
  }));
  EXPECT_FALSE(changed([](GemmProblem& x) {
    x.batch = 3;
    x.b.stride_batch = 2 * x.n * x.k;
    x.groups = {.dimension = Grouping::m, .zero_rest = true};
  }));
}

/// Half of a scale's columns each, of two CTAs that share loads: gated, whole or summed in turn, groups of rows among
/// them.
TEST(QuantizeApart, NeighboursShareScales) {
  GemmProblem p = layer(4096, 2048, 1024);
  const auto choice = choose(p, "sm90 128x128 pingpong multicast 1x2");
  ASSERT_TRUE(choice.has_value());
  EXPECT_TRUE(pairs_scales(choice->config));
  const SmemPlan plan = smem_plan(choice->config);
  EXPECT_EQ(plan.paired_reach % 16, 0u);
  EXPECT_GE(plan.barriers, plan.paired_barriers + 4 * sizeof(uint64_t));
  for (const char* words : {"sm90 128x128 pingpong", "sm90 128x128 pingpong multicast 2x1", "sm90 128x96 multicast 1x2",
                            "sm90 128x128 multicast 1x2 parallel 2", "sm90 128x128 multicast 1x2 stream_k 1"})
    EXPECT_FALSE(choose(p, words).has_value()) << words;
  GemmProblem groups = p;
  groups.batch = 2;
  groups.b.stride_batch = 2 * p.n * p.k;
  groups.groups = {.dimension = Grouping::m, .zero_rest = true};
  for (const char* words : {"sm90 128x128 multicast 1x2", "sm90 128x128 multicast 1x2 serial 2"}) {
    for (const GemmProblem* problem : {&p, &groups}) {
      const auto paired = choose(*problem, words);
      ASSERT_TRUE(paired.has_value()) << words;
      EXPECT_TRUE(pairs_scales(paired->config));
    }
  }
  p.epilogue = EpilogueProblem();
  EXPECT_FALSE(choose(p, "sm90 128x64 multicast 1x2").has_value());
  EXPECT_FALSE(pairs_scales(choose(p, "sm90 128x128 multicast 1x2")->config));
}

TEST(QuantizeApart, SecondKernelsProblemIsValid) {
  for (const bool halves : {false, true}) {
    for (const int64_t n : {128, 130, 2048}) {
      const GemmProblem p = layer(16, n, 1024);
      const auto broken = validate(quantization_of(p, halves));
      EXPECT_TRUE(broken.empty()) << broken.front();
    }
  }
}

}  // namespace
}  // namespace cleave

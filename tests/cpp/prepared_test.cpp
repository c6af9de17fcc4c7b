#include "plan/plans/prepared.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "cleave/device.h"
#include "conv_problems.h"
#include "gemm_problems.h"
#include "plan/plans/gpu_plan.h"

namespace cleave {
namespace {

/// Weights of each test's own, since what is prepared stays so.
GemmProblem layer(int64_t m, int64_t n, int64_t k = 1024) {
  GemmProblem p{.m = m, .n = n, .k = k, .a = row_major(k), .b = column_major(k), .d = row_major(n)};
  p.c = p.d;
  p.device = kPlanOnlyH100;
  return p;
}

std::set<std::string> sources(const std::vector<std::shared_ptr<const GemmPlan>>& plans) {
  std::set<std::string> texts;
  for (const auto& plan : plans) texts.insert(plan->kernel_source());
  return texts;
}

bool is_prepared(const GemmProblem& p) {
  return plan(p)->why().find("prepared") != std::string::npos;
}

TEST(Prepared, NoOtherKernelIsRun) {
  for (const Kernels kernels : {Kernels::covering, Kernels::all}) {
    const int64_t n = kernels == Kernels::all ? 1536 : 1792;
    EXPECT_FALSE(is_prepared(layer(100, n)));
    const auto plans = prepare_rows(layer(1, n), 1, 600, kernels);
    const std::set<std::string> texts = sources(plans);
    EXPECT_EQ(texts.size(), plans.size());  // each once
    for (int64_t m = 1; m <= 600; ++m) {
      ASSERT_TRUE(is_prepared(layer(m, n))) << m;
      EXPECT_TRUE(texts.contains(plan(layer(m, n))->kernel_source())) << m;
    }
    EXPECT_FALSE(is_prepared(layer(601, n)));
    EXPECT_FALSE(is_prepared(layer(100, n + 8)));
  }
}

TEST(Prepared, AChoiceIsTheOneOfItsStep) {
  prepare_rows(layer(1, 2048), 3, 512, Kernels::all);
  for (const int64_t m : {3, 15, 16, 64, 496, 512}) {
    const GemmProblem p = layer(m, 2048);
    EXPECT_EQ(prepared(p), cheapest(p, device_info(p.device), Kernels::all).choice->spec) << m;
  }
  EXPECT_EQ(prepared(layer(17, 2048)), prepared(layer(32, 2048)));
  EXPECT_FALSE(prepared(layer(2, 2048)));
}

TEST(Prepared, RowsThatMustNotDependOnTheBatchHaveOneSplit) {
  const auto invariant = [](int64_t m) {
    GemmProblem p = layer(m, 256, 8192);
    p.deterministic = Determinism::batch_invariant;
    return p;
  };
  const auto plans = prepare_rows(invariant(1), 1, 2000, Kernels::covering);
  const std::set<std::string> texts = sources(plans);
  EXPECT_FALSE(is_prepared(layer(100, 256, 8192)));
  for (const int64_t m : {1, 2, 17, 64, 300, 999, 2000}) {
    const auto made = plan(invariant(m));
    EXPECT_TRUE(is_prepared(invariant(m)) && texts.contains(made->kernel_source())) << m;
    EXPECT_EQ(made->split_k_slices(), plans[0]->split_k_slices()) << m;
  }
  EXPECT_GT(plans[0]->split_k_slices(), 1);
}

TEST(Prepared, WorkspacesSufficeForEveryM) {
  size_t most = 0;
  for (const auto& plan : prepare_rows(layer(1, 576, 7168), 1, 300, Kernels::covering))
    most = std::max(most, plan->workspace_size());
  EXPECT_GT(most, 0u);
  for (int64_t m = 1; m <= 300; ++m) EXPECT_LE(plan(layer(m, 576, 7168))->workspace_size(), most) << m;
}

TEST(Prepared, WhatIsDoneToSumsAndHowLinesLieMatters) {
  prepare_rows(layer(64, 2304), 1, 256, Kernels::covering);
  GemmProblem p = layer(64, 2304);
  p.a.stride_row = 2048;  // a slice of wider rows
  p.d.stride_row = 4096;
  EXPECT_TRUE(is_prepared(p));
  p.a.stride_row = 1028;  // of other alignment
  EXPECT_FALSE(is_prepared(p));
  p = layer(1, 2304);
  p.a.stride_row = 5;  // of one row, which is any
  EXPECT_TRUE(is_prepared(p));
  p = layer(64, 2304);
  p.bias = Bias::row;
  EXPECT_FALSE(is_prepared(p));
  p = layer(64, 2304);
  p.split_k_mode = SplitKMode::parallel;
  EXPECT_FALSE(is_prepared(p));
}

TEST(Prepared, OperandsMayLieAlongMOrFallIntoGroups) {
  GemmProblem p = layer(64, 2560);
  p.a = column_major(64);
  const std::set<std::string> texts = sources(prepare_rows(p, 1, 40, Kernels::covering));
  for (int64_t m = 2; m <= 40; ++m) {
    p.m = m;
    p.a.stride_col = m;
    EXPECT_TRUE(texts.contains(plan(p)->kernel_source())) << m;
  }
  GemmProblem groups = layer(64, 2560);
  groups.batch = 4;
  groups.b.stride_batch = 2560 * 1024;
  groups.groups = {.dimension = Grouping::m};
  const std::set<std::string> of_groups = sources(prepare_rows(groups, 1, 100, Kernels::covering));
  for (int64_t m = 1; m <= 100; ++m) {
    groups.m = m;
    groups.groups.zero_rest = m % 2 == 0;
    ASSERT_TRUE(is_prepared(groups));
    EXPECT_TRUE(of_groups.contains(plan(groups)->kernel_source())) << m;
  }
}

TEST(Prepared, WhatIsNoRangeOfRowsIsRefused) {
  EXPECT_THROW(prepare_rows(layer(1, 512), 0, 5, Kernels::all), Error);
  EXPECT_THROW(prepare_rows(layer(1, 512), 6, 5, Kernels::all), Error);
  EXPECT_THROW(prepare_rows(layer(1, 512), 1, int64_t(1) << 40, Kernels::all), Error);
  GemmProblem conv = good_conv(Conv::fprop);
  conv.device = kPlanOnlyH100;
  EXPECT_THROW(prepare_rows(conv, 1, 5, Kernels::all), Error);
  GemmProblem host = layer(1, 512);
  host.device = kCpu;
  EXPECT_THROW(prepare_rows(host, 1, 5, Kernels::all), Error);
}

}  // namespace
}  // namespace cleave

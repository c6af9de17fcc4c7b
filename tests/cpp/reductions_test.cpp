// Plans for a GPU whose epilogue function reduces D: the second kernel, and the workspace.
#include "plan/plans/reductions.h"

#include <gtest/gtest.h>

#include "all_kernels/typical_problems.h"
#include "cleave/conv.h"
#include "cleave/epilogue.h"
#include "cleave/gemm.h"
#include "expect_no_spills.h"
#include "plan/choice/spec.h"
#include "plan/make_plan.h"
#include "plan/plans/gpu_plan.h"
#include "plan/plans/staged_reductions.h"

namespace cleave {
namespace {

using typical::with_reductions;

GemmProblem problem_of(int64_t m, int64_t n, SplitKMode mode, int32_t slices) {
  GemmProblem p{.m = m, .n = n, .k = 4096};
  p.a = {.stride_row = p.k};
  p.b = {.stride_row = 1, .stride_col = p.k};
  p.d = {.stride_row = n};
  p.split_k_mode = mode;
  p.split_k_slices = slices;
  p.device = kPlanOnlyH100;
  return with_reductions(p);
}

TEST(Reductions, WorkspaceHasAPartialResultForEachUnit) {
  const auto whole = plan(problem_of(256, 512, SplitKMode::none, 0));
  const Choice& c = *choice_of(*whole);
  const size_t rows = c.spec.transposed ? 512 : 256, columns = c.spec.transposed ? 256 : 512;
  // A column of `norm` for each column of tiles, and `amax` for each unit. The transposed reading has rows.
  const size_t of_norm = c.spec.transposed ? c.row_units * columns : c.column_units * rows;
  const size_t floats = of_norm + size_t(c.row_units) * c.column_units;
  EXPECT_EQ(whole->workspace_size(), round_up<size_t>(floats * sizeof(float), 16));
  EXPECT_GE(c.row_units * 16, rows);
  const auto parts = plan(problem_of(256, 512, SplitKMode::parallel, 4));
  EXPECT_GT(choice_of(*parts)->reduction_bytes, c.reduction_bytes) << "blocks of 8 columns have one each";
}

TEST(Reductions, LinesThatATileHasAloneAreResults) {
  GemmProblem p = problem_of(4096, 64, SplitKMode::none, 0);
  p.epilogue.function = &epilogue_function("%0 = multiply acc acc\nd = acc\nnorm = sum column %0");
  const auto partial_results = [](const GemmProblem& problem, const char* kernel) {
    const Choice choice = make_choice(problem, device_info(kPlanOnlyH100), *parse_spec(kernel)).value();
    EXPECT_EQ(joins_of(choice).any(), choice.reduction_bytes > 0);
    return choice.reduction_bytes / sizeof(float);
  };
  EXPECT_EQ(partial_results(p, "sm90 128x64"), 0u);
  EXPECT_EQ(partial_results(p, "sm90 128x32"), 2 * 4096u);
  EXPECT_EQ(partial_results(p, "sm90 64x32 transposed"), 4 * 4096u) << "units of rows have 16";
  EXPECT_EQ(partial_results(p, "sm90 128x64 parallel 2"), 8 * 4096u) << "and of blocks 8 columns";
  GemmProblem apart = p;
  apart.epilogue.outputs[0].stride = 2;
  EXPECT_EQ(partial_results(apart, "sm90 128x64"), 4096u);
  GemmProblem together = p;
  together.batch = 3;
  together.a.stride_batch = 4096 * 4096;
  together.d.stride_batch = 4096 * 64;
  EXPECT_EQ(partial_results(together, "sm90 128x64"), 3 * 4096u);
  together.epilogue.outputs[0].stride_batch = 4096;
  EXPECT_EQ(partial_results(together, "sm90 128x64"), 0u);
}

TEST(Reductions, PlansOfResultsHaveNoSecondKernel) {
  GemmProblem p = problem_of(16, 4096, SplitKMode::none, 0);
  p.epilogue.function = &epilogue_function("d = acc\nsums = sum row acc");
  p.epilogue.outputs[0].shape = InputShape::row;
  const auto planned = plan(p);
  EXPECT_EQ(planned->kernel_name(), "sm90 64x16 transposed");
  EXPECT_EQ(planned->kernel_sources().size(), 1u);
  EXPECT_EQ(planned->workspace_size(), 0u);
}

TEST(Reductions, SecondKernelReadsALinesUnitsAtOnce) {
  const auto lines_of_cta = [](uint32_t units, uint32_t lines) {
    const PartialResults x{.units = units, .lines = lines};
    return std::pair(1u << x.line_bits(), x.line_blocks());
  };
  EXPECT_EQ(lines_of_cta(4096, 1), std::pair(1u, 1u));
  EXPECT_EQ(lines_of_cta(16, 4096), std::pair(32u, 128u));
  EXPECT_EQ(lines_of_cta(256, 16), std::pair(16u, 1u));
  EXPECT_EQ(lines_of_cta(512, 8192), std::pair(8u, 1024u));
  EXPECT_EQ(lines_of_cta(1u << 27, 40), std::pair(8u, 5u));
}

GemmProblem grouped_problem() {
  GemmProblem p = problem_of(256, 512, SplitKMode::none, 0);
  p.batch = 4;
  p.b.stride_batch = 512 * 4096;
  p.groups.dimension = Grouping::m;
  return with_reductions(p);
}

/// What each group has a value for: sums of its rows, and its largest magnitude.
GemmProblem reduced_over_groups() {
  GemmProblem p = grouped_problem();
  p.epilogue.function = &epilogue_function("d = acc\nsums = sum row acc\namax = absmax scalar acc");
  p.epilogue.outputs[0] = {.shape = InputShape::row, .alignment = 4, .stride = 1, .stride_batch = p.n};
  return p;
}

TEST(Reductions, SecondKernelCompilesWithoutSpills) {
  for (const GemmProblem& p : {problem_of(256, 512, SplitKMode::none, 0), grouped_problem(), reduced_over_groups()}) {
    const std::vector<std::string> sources = plan(p)->kernel_sources();
    ASSERT_EQ(sources.size(), 2u);
    for (const char* const arch : {"sm_80", "sm_90a"}) expect_no_spills({sources[1]}, arch);
  }
}

TEST(Reductions, GroupsHaveUnitsTileByTile) {
  const GemmProblem p = reduced_over_groups();
  const auto choice_of_kernel = [&](const char* kernel) {
    return make_choice(p, device_info(kPlanOnlyH100), *parse_spec(kernel)).value();
  };
  // 256 rows in four groups: at most one tile more than rows fill for each but one.
  const Choice choice = choice_of_kernel("sm90 128x128");
  EXPECT_EQ(choice.row_units, 5 * 128 / 16u);
  EXPECT_EQ(choice.column_units, 4u);
  EXPECT_EQ(choice.reduction_bytes, 40 * (512 + 4) * sizeof(float));
  const Choice transposed = choice_of_kernel("sm90 128x64 transposed");
  EXPECT_EQ(transposed.column_units, 7u) << "groups of columns have units of a tile's 64";
  EXPECT_EQ(transposed.row_units, 512 / 16u);
  EXPECT_EQ(transposed.reduction_bytes, round_up(7 * (512 + 32) * sizeof(float), size_t{16}));
}

TEST(Reductions, EmptyDHasNoPartialResults) {
  const auto empty = plan(problem_of(0, 512, SplitKMode::none, 0));
  EXPECT_EQ(empty->workspace_size(), 0u);
}

/// The matrices that are reduced lie behind the product's own part of the workspace.
void expect_staged(const GemmProblem& p) {
  ASSERT_TRUE(stages_reductions(p));
  const auto whole = plan(p), product = plan_as(p, choice_of(*whole)->spec);
  const size_t d = round_up<size_t>(size_t(p.m) * size_t(p.n) * sizeof(float), 16), matrices = 2;  // norm, amax
  EXPECT_GE(whole->workspace_size(), matrices * d);
  EXPECT_EQ(whole->workspace_size(), product->workspace_size());
  EXPECT_EQ(choice_of(*whole)->reduction_bytes, 0u);
  const std::vector<std::string> sources = whole->kernel_sources();
  ASSERT_GE(sources.size(), 2u);  // launches of classes may differ
  EXPECT_NE(sources.back().find("reduce_partials"), std::string::npos);
  EXPECT_NE(whole->why().find("a kernel behind it reduces"), std::string::npos) << whole->why();
}

TEST(Reductions, DataGradientsOfSeveralLaunchesReduceApart) {
  const auto gradient = [](int32_t stride) {
    ConvLayout conv{.kind = Conv::dgrad, .images = 2, .channels = 16, .filters = 16};
    conv.axes[1] = conv.axes[2] = {.size = 40, .filter = 3, .stride = stride};
    GemmProblem p = implicit_gemm(conv, 1, DType::bf16, DType::bf16);
    p.device = kPlanOnlyH100;
    return with_reductions(p);
  };
  EXPECT_FALSE(stages_reductions(gradient(8)));  // 64 classes of pixels
  EXPECT_GT(plan(gradient(8))->workspace_size(), 0u);
  expect_staged(gradient(9));
}

TEST(Reductions, WhatDependsOnItsRowAloneIsReducedApart) {
  for (GemmProblem p : {problem_of(256, 512, SplitKMode::automatic, 0), grouped_problem(), reduced_over_groups()}) {
    p.split_k_mode = SplitKMode::automatic;
    EXPECT_FALSE(stages_reductions(p));
    p.deterministic = Determinism::batch_invariant;
    EXPECT_TRUE(validate(p).empty());
    expect_staged(p);
  }
}

/// How many threads share a line must not depend on how many lines there are, as it may of partial results.
TEST(Reductions, ElementsAreAddedUpInOneOrder) {
  for (const uint32_t lines : {1u, 7u, 4096u}) {
    const PartialResults x{.units = 512, .lines = lines, .of_elements = true};
    EXPECT_EQ(x.line_bits(), 3u);
  }
  EXPECT_EQ((PartialResults{.units = 512, .lines = 1, .of_elements = true, .is_one = true}.line_bits()), 0u);
}

}  // namespace
}  // namespace cleave

// Plans for a GPU whose epilogue function reduces D: the second kernel, and the workspace.
#include "plan/reductions.h"

#include <gtest/gtest.h>

#include "cleave/epilogue.h"
#include "cleave/gemm.h"
#include "expect_no_spills.h"
#include "plan/gpu_plan.h"
#include "plan/typical_problems.h"

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

TEST(Reductions, SecondKernelCompilesWithoutSpills) {
  GemmProblem grouped = problem_of(256, 512, SplitKMode::none, 0);
  grouped.batch = 4;
  grouped.b.stride_batch = 512 * 4096;
  grouped.groups.dimension = Grouping::m;
  for (const GemmProblem& p : {problem_of(256, 512, SplitKMode::none, 0), with_reductions(grouped)}) {
    const std::vector<std::string> sources = plan(p)->kernel_sources();
    ASSERT_EQ(sources.size(), 2u);
    for (const char* const arch : {"sm_80", "sm_90a"}) expect_no_spills({sources[1]}, arch);
  }
}

TEST(Reductions, EmptyDHasNoPartialResults) {
  const auto empty = plan(problem_of(0, 512, SplitKMode::none, 0));
  EXPECT_EQ(empty->workspace_size(), 0u);
}

TEST(Reductions, GroupsAreNotReducedOverWhatIsCut) {
  GemmProblem p = problem_of(256, 512, SplitKMode::none, 0);
  p.batch = 4;
  p.b.stride_batch = 512 * 4096;
  p.groups.dimension = Grouping::m;
  const auto broken = validate(p);
  ASSERT_EQ(broken.size(), 1u) << broken.front();
  EXPECT_EQ(broken.front(),
            "amax is reduced over all of D, but rows of D are cut into groups; reduce over columns, or store the value "
            "as an output and reduce that");
}

}  // namespace
}  // namespace cleave

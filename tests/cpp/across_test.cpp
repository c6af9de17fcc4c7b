// Products that add up themselves what several ranks have: which there are, and their kernels.
#include "cleave/across.h"

#include <gtest/gtest.h>

#include <set>

#include "cleave/device.h"
#include "cleave/epilogue.h"
#include "cleave/fold.h"
#include "cleave/peers/strip_sizes.h"
#include "expect_no_spills.h"
#include "peers/fold_launch.h"
#include "peers/fold_problem.h"

namespace cleave {
namespace {

AcrossProblem problem_of(int64_t m, int64_t n, int64_t k, DType partial = DType::bf16) {
  return {.product = {.m = m,
                      .n = n,
                      .k = k,
                      .a = {.stride_row = k},
                      .b = {.stride_row = 1, .stride_col = k},
                      .d = {.stride_row = n},
                      .device = kPlanOnlyH200},
          .partial = partial};
}

FoldProblem fold_of(const AcrossProblem& p) {
  return {.ranks = p.ranks,
          .rows = p.product.m,
          .most_rows = p.product.m,
          .columns = p.product.n,
          .partial = {.dtype = p.partial, .stride_row = p.product.n},
          .d = p.product.d,
          .pushed = true,
          .in_strips = true,
          .device = p.product.device};
}

TEST(Strips, FitWhatRanksPushToEachOther) {
  for (const uint32_t ranks : {2, 3, 4, 8}) {
    for (const uint32_t rows : {1, 16, 17, 64}) {
      for (const uint32_t bytes : {2, 4}) {
        const uint32_t vectors = strip_vectors(rows, bytes);
        EXPECT_GE(vectors * 16 * kStripThreads, kStripColumns * rows * bytes);
        EXPECT_LE(vectors, strip_places(vectors, ranks) * vectors_of_place(ranks));
        const uint64_t place = pushed_offset(ranks, 0, 0, 1) - pushed_offset(ranks, 0, 0, 0);
        EXPECT_EQ(vectors_of_place(ranks) * kStripThreads * 16, place);
        EXPECT_EQ(fits_strips(ranks, rows, 4096, bytes), vectors * ranks <= kMostStripVectors);
      }
    }
  }
  EXPECT_TRUE(fits_strips(2, 64, 8192, 4));   // 256 places
  EXPECT_FALSE(fits_strips(2, 64, 8256, 4));  // more
  EXPECT_FALSE(fits_strips(2, 65, 8192, 2));
  EXPECT_FALSE(fits_strips(2, 16, 8200, 2));
  EXPECT_FALSE(fits_strips(1, 16, 8192, 2));
}

TEST(Across, SmallProductsAddUpThemselves) {
  for (const DType partial : {DType::bf16, DType::f16, DType::f32}) {
    for (const int64_t m : {1, 16, 24, 64}) {
      for (const int64_t k : {1024, 4096, 14336})
        EXPECT_NE(plan_across(problem_of(m, 8192, k, partial)), nullptr) << m << " " << k;
    }
  }
  AcrossProblem p = problem_of(16, 8192, 4096);
  EXPECT_EQ(plan_across(p), plan_across(p));
  p.product.has_c = true;
  p.product.c = p.product.d;
  p.product.bias = Bias::row;
  p.product.epilogue = epilogue_of(Activation::silu);
  EXPECT_NE(plan_across(p), nullptr);
}

TEST(Across, WhatHasOtherBitsOrNoStripsDoesNot) {
  EXPECT_EQ(plan_across(problem_of(65, 8192, 4096)), nullptr);
  EXPECT_EQ(plan_across(problem_of(16, 8200, 4096)), nullptr);
  AcrossProblem p = problem_of(16, 8192, 4096);
  p.product.a.alignment = 2;  // which TMA does not read
  EXPECT_EQ(plan_across(p), nullptr);
  p = problem_of(16, 8192, 4096);
  p.product.split_k_mode = SplitKMode::parallel;
  p.product.split_k_slices = 4;
  EXPECT_EQ(plan_across(p), nullptr);
  p = problem_of(16, 8192, 4096);
  p.product.device = kCpu;
  EXPECT_EQ(plan_across(p), nullptr);
  p.product = {.m = -1, .device = kPlanOnlyH200};
  EXPECT_EQ(plan_across(p), nullptr);
}

TEST(Across, FoldsInStripsHaveACtaForEach) {
  const AcrossProblem p = problem_of(16, 4096, 64);
  FoldProblem fold = fold_of(p);
  ASSERT_TRUE(validate(fold).empty());
  EXPECT_EQ(fold_launches(fold)[0].shape.grid.x, 64u);
  EXPECT_EQ(fold_launches(fold)[0].shape.block.x, kStripThreads);
  EXPECT_EQ(fold_launches(fold)[0].params.rows, 16u);
  fold.columns = 4104;
  fold.partial.stride_row = fold.d.stride_row = 4104;
  EXPECT_EQ(validate(fold)[0],
            "in_strips is true, but 2 partial results of 16 x 4104 bfloat16 fit no strips or are not pushed; leave it");
}

TEST(Across, KernelsCompileWithoutSpills) {
  std::set<std::string> products, folds;
  for (const DType partial : {DType::bf16, DType::f32}) {
    for (const int64_t m : {16, 64}) {
      AcrossProblem p = problem_of(m, 8192, 4096, partial);
      p.product.bias = Bias::row;
      products.insert(plan_across(p)->kernel_source());
      for (p.ranks = 2; p.ranks <= 8; p.ranks *= 2) {
        if (!fits_strips(p.ranks, m, 4096, size_of(partial))) continue;
        p.product.n = p.product.d.stride_row = 4096;
        folds.insert(translation_unit(FoldKernel::fold, config_of(fold_of(p))));
      }
    }
  }
  expect_no_spills(products, "sm_90a", 232);
  expect_no_spills(folds, "sm_90a", 232);
}

}  // namespace
}  // namespace cleave

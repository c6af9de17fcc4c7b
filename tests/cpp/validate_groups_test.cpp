// The rules of groups, and of what is joined by swiglu.

#include <gtest/gtest.h>

#include "cleave/names.h"
#include "gemm_problems.h"
#include "problem/placement.h"
#include "problem/problem.h"

namespace cleave {
namespace {

/// The scales of 8-bit operands; the strides are those that groups of m want.
GemmProblem scaled_m_groups() {
  GemmProblem p = good_m_groups();
  p.a.dtype = p.b.dtype = DType::e4m3;
  p.scale_a = {.kind = Scaling::vector, .stride_row = 1};
  p.scale_b = {.kind = Scaling::vector, .stride_row = 1, .stride_batch = 20};
  return p;
}

GemmProblem block_scaled_k_groups() {
  GemmProblem p = good_blocks();
  p.a.stride_batch = p.b.stride_batch = p.scale_a.stride_batch = 0;
  p.groups = {.dimension = Grouping::k, .bounds = GroupBounds::aligned_ends, .spacing = 128};
  return p;
}

TEST(ValidateGroups, BlocksOfNoRowsAreRefused) {
  GemmProblem p = block_scaled_k_groups();
  p.scale_a.rows = 0;
  expect_refusal(p, {"scale_a.rows is 0"});
}

TEST(ValidateGroups, AcceptsEveryDimensionAndBounds) {
  for (const GemmProblem& good : {good_m_groups(), transposed(good_m_groups()), good_k_groups()}) {
    for (const GroupBounds bounds : {GroupBounds::ends, GroupBounds::indptr, GroupBounds::starts,
                                     GroupBounds::aligned_ends, GroupBounds::counts}) {
      for (const bool wide : {false, true}) {
        GemmProblem p = good;
        p.groups.bounds = bounds;
        p.groups.wide = wide;
        p.groups.spacing = 10;
        EXPECT_EQ(validate(p), kFine) << to_string(bounds);
      }
    }
  }
  for (GemmProblem p : {good_m_groups(), good_k_groups()}) {
    p.has_c = true;
    p.bias = Bias::row;
    p.bias_stride_batch = 20;
    p.epilogue = epilogue_of(Activation::silu);
    p.d.dtype = p.c.dtype = DType::f32;
    EXPECT_EQ(validate(p), kFine);
  }
}

TEST(ValidateGroups, OnlyPackedGroupsOfKLieApart) {
  GemmProblem good = block_scaled_k_groups();
  good.k = 1024;
  good.a.stride_row = good.b.stride_col = good.k;
  good.a.stride_col = good.b.stride_row = 1;
  good.groups.apart = true;
  EXPECT_EQ(validate(good), kFine);

  GemmProblem p = good_k_groups();
  p.groups.apart = true;
  expect_refusal(p, {"groups.apart is set, but k is grouped by ends"});
  p = good_m_groups();
  p.groups.apart = true;
  expect_refusal(p, {"groups.apart is set, but m is grouped by ends"});
  p = good;
  p.k = 1000;
  p.a.stride_row = p.b.stride_col = p.k;
  expect_refusal(p, {"k is 1000, but groups lie apart with room for multiples of 128"});
  p = good;
  p.a.stride_row = 2048;
  expect_refusal(p, {"a's strides are 2048 and, along k, 1"});
}

TEST(ValidateGroups, TilesOfRowsAreCountedOnceForAllGroups) {
  const int64_t tokens = 1 << 20, n = 16384, k = 64;
  GemmProblem p = good_m_groups();
  p.m = tokens, p.n = n, p.k = k, p.batch = 512;
  p.a = {.dtype = DType::bf16, .stride_row = k};
  p.b = {.dtype = DType::bf16, .stride_row = n, .stride_batch = k * n};
  p.d = {.dtype = DType::bf16, .stride_row = n};
  EXPECT_EQ(validate(p), kFine);  // 2^31 tiles, had each group all of them

  p.groups.dimension = Grouping::k;  // whose groups have
  p.b.stride_batch = 0;
  p.d.stride_batch = tokens * n;
  EXPECT_NE(validate(p), kFine);
}

TEST(ValidateGroups, EmptyDimensionsAreFine) {
  for (GemmProblem p : {good_m_groups(), good_k_groups()}) {
    for (int64_t GemmProblem::* size : {&GemmProblem::m, &GemmProblem::n, &GemmProblem::k}) {
      GemmProblem empty = p;
      empty.*size = 0;
      EXPECT_EQ(validate(empty), kFine);
    }
  }
}

TEST(ValidateGroups, Count) {
  GemmProblem p = good_m_groups();
  p.batch = kMostGroups;
  EXPECT_EQ(validate(p), kFine);
  p.batch = kMostGroups + 1;
  expect_refusal(p, {"batch, the number of groups, is 1025", "1 to 1024"});
  p.batch = 0;
  expect_refusal(p, {"batch, the number of groups, is 0"});
  p.groups = {};
  EXPECT_EQ(validate(p), kFine) << "an empty batch is no group";
}

TEST(ValidateGroups, Spacing) {
  GemmProblem p = good_m_groups();
  for (const int64_t spacing : {int64_t(0), int64_t(-5), int64_t(1) << 31}) {
    p.groups.spacing = spacing;
    expect_refusal(p, {"groups.spacing (alignment) is " + std::to_string(spacing), "1 to 2^31"});
  }
}

TEST(ValidateGroups, NoDimension) {
  GemmProblem p = good();
  p.groups.bounds = GroupBounds::counts;
  expect_refusal(p, {"groups of no dimension"});
}

TEST(ValidateGroups, WhatIsSharedHasNoBatch) {
  GemmProblem p = good_m_groups();
  p.a.stride_batch = 1500;
  expect_refusal(p, {"a.stride_batch is 1500", "m is grouped", "pass 0"});
  p = good_m_groups();
  p.d.stride_batch = 600;
  expect_refusal(p, {"d.stride_batch is 600"});
  p = good_m_groups();
  p.c.stride_batch = 600;
  EXPECT_EQ(validate(p), kFine) << "C takes no part";
  p.has_c = true;
  expect_refusal(p, {"c.stride_batch is 600"});
  p = good_m_groups();
  p.b.stride_batch = 0;
  EXPECT_EQ(validate(p), kFine) << "groups may share one matrix";
  p = good_k_groups();
  p.b.stride_batch = 1000;
  expect_refusal(p, {"b.stride_batch is 1000", "k is grouped"});
  p = good_k_groups();
  p.d.stride_batch = 0;
  expect_refusal(p, {"d.stride_batch is 0"});
}

TEST(ValidateGroups, DOfAllGroupsMayNotOverlapItself) {
  GemmProblem p = good_k_groups();
  p.d.stride_batch = 599;
  expect_refusal(p, {"d overlaps itself", "[3, 30, 20]"});
  p = good_m_groups();
  p.d.stride_row = 19;
  expect_refusal(p, {"d overlaps itself", "[1, 30, 20]"});
}

TEST(ValidateGroups, GroupsOfKLeaveNothing) {
  GemmProblem p = good_k_groups();
  p.groups.zero_rest = true;
  expect_refusal(p, {"groups.zero_rest is set", "k is grouped"});
}

TEST(ValidateGroups, Bias) {
  GemmProblem p = good_m_groups();
  p.bias = Bias::column;
  EXPECT_EQ(validate(p), kFine);
  p.bias_stride_batch = 30;
  expect_refusal(p, {"bias_stride_batch is 30", "column of bias", "m, which is grouped"});
  p = transposed(good_m_groups());
  p.bias = Bias::row;
  p.bias_stride_batch = 30;
  expect_refusal(p, {"row of bias", "n, which is grouped"});
  p.bias = Bias::column;
  EXPECT_EQ(validate(p), kFine);
  p.bias_stride_batch = -1;
  expect_refusal(p, {"bias_stride_batch is -1", "negative"});
}

TEST(ValidateGroups, Scales) {
  GemmProblem p = scaled_m_groups();
  EXPECT_EQ(validate(p), kFine);
  EXPECT_EQ(validate(transposed(p)), kFine);
  p.scale_a.stride_batch = 30;
  expect_refusal(p, {"scale_a.stride_batch is 30", "m is grouped"});
  p.groups = {.dimension = Grouping::k};
  p.b.stride_batch = 0;
  p.d.stride_batch = 600;
  EXPECT_EQ(validate(p), kFine) << "each group of K has scales of its own";
}

TEST(ValidateGroups, BlocksOfScalesCoverOneGroup) {
  GemmProblem p = good_blocks();
  p.groups.dimension = Grouping::m;
  p.a.stride_batch = p.d.stride_batch = p.scale_a.stride_batch = 0;
  EXPECT_EQ(validate(p), kFine);
  EXPECT_EQ(validate(transposed(p)), kFine);
  p.scale_a.rows = 128;
  expect_refusal(p, {"scale_a.rows is 128", "m is grouped", "1 x 128"});
  expect_refusal(transposed(p), {"scale_b.rows is 128", "n is grouped"});
}

TEST(ValidateGroups, BlocksOfKBeginWithGroups) {
  GemmProblem p = block_scaled_k_groups();
  for (const uint32_t rows : {1u, 128u}) {
    p.scale_a.rows = rows;
    EXPECT_EQ(validate(p), kFine);
  }
  p.groups.bounds = GroupBounds::counts;
  p.groups.spacing = 384;
  EXPECT_EQ(validate(p), kFine);
  p.groups.spacing = 192;
  expect_refusal(p, {"k is grouped by counts with spacing 192", "multiple of 128"});
  p.groups = {.dimension = Grouping::k, .spacing = 128};
  expect_refusal(p, {"k is grouped by ends", "aligned_ends"});
  p = block_scaled_k_groups();
  p.scale_a.stride_batch = 90;
  expect_refusal(p, {"scale_a.stride_batch is 90", "k is grouped"});
}

GemmProblem listed(GemmProblem p) {
  p.gather = {.given = true, .rows = 7, .divisor = 5};
  return p;
}

TEST(ValidateGroups, AListNamesRowsOfGroupsOfM) {
  EXPECT_EQ(validate(listed(good_m_groups())), kFine);
  EXPECT_EQ(validate(listed(scaled_m_groups())), kFine);
  expect_refusal(listed(good_k_groups()), {"gather is given", "k is grouped"});
  GemmProblem p = listed(good_m_groups());
  p.groups = {};
  p.batch = 1;
  p.b.stride_batch = 0;
  expect_refusal(p, {"gather is given", "no dimension is grouped"});
  p = listed(good_m_groups());
  p.groups.bounds = GroupBounds::counts;
  expect_refusal(p, {"gather is given", "groups are counts"});
  p = listed(good_m_groups());
  p.gather.divisor = int64_t(1) << 30;
  expect_refusal(p, {"gather.rows and gather.divisor are 7 and 1073741824"});
  p.gather.divisor = 0;
  expect_refusal(p, {"gather.rows and gather.divisor are 7 and 0"});
  p.gather = {.given = true};
  expect_refusal(p, {"gather has 30 rows of an a that has none"});
  p = listed(good_m_groups());
  p.a.stride_row = 1;
  p.a.stride_col = 7;
  expect_refusal(p, {"a.stride_col is 7", "must be contiguous"});
}

TEST(ValidateGroups, ListedRowsAreThoseOfTheirOperand) {
  const GemmProblem p = listed(scaled_m_groups()), t = transposed(p);
  EXPECT_EQ(a_of(p).rows, 7);
  EXPECT_EQ(scale_a_of(p).rows, 7);
  EXPECT_EQ(d_of(p).rows, p.m);
  EXPECT_EQ(gather_of(p).columns, p.m);
  EXPECT_EQ(b_of(t).columns, 7);
  EXPECT_EQ(scale_b_of(t).rows, 7);
  EXPECT_EQ(gather_of(t).columns, p.m);
}

TEST(ValidateGroups, NoZeroPoints) {
  GemmProblem p = good_m_groups();
  p.a.dtype = p.b.dtype = DType::i8;
  p.has_zero = true;
  expect_refusal(p, {"has_zero (azp_adj) is set", "grouped product", "symmetrically"});
}

TEST(ValidateSwiglu, AcceptsGoodProblems) {
  GemmProblem p = good_swiglu();
  EXPECT_EQ(validate(p), kFine);
  p.bias = Bias::row;
  EXPECT_EQ(validate(p), kFine);
  p.groups.dimension = Grouping::m;
  p.a.stride_batch = p.d.stride_batch = 0;
  p.bias_stride_batch = 40;
  EXPECT_EQ(validate(p), kFine);
  for (const DType type : {DType::f16, DType::f32}) {
    p.d.dtype = type;
    EXPECT_EQ(validate(p), kFine);
  }
}

TEST(ValidateSwiglu, BHasTwiceTheColumns) {
  GemmProblem p = good_swiglu();
  p.b.stride_row = 39;
  EXPECT_EQ(validate(p), kFine) << "rows of an operand may overlap";
  p.b = column_major(50, 1500);
  p.b.stride_col = int64_t(1) << 57;  // 39 * 2^57 elements of 2 bytes
  expect_refusal(p, {"b spans more than 2^63 bytes"});
  p.epilogue = EpilogueProblem();
  EXPECT_EQ(validate(p), kFine) << "19 * 2^57 fit";
  p = good_swiglu();
  p.m = p.batch = 1;
  p.n = int64_t(1) << 30;
  expect_refusal(p, {"n is 1073741824", "twice as many columns"});
}

TEST(ValidateSwiglu, WhatItDoesNotServe) {
  GemmProblem p = good_swiglu();
  p.has_c = true;
  expect_refusal(p, {"c is given", "swiglu"});
  p = good_swiglu();
  p.groups.dimension = Grouping::k;
  p.a.stride_batch = p.b.stride_batch = 0;
  expect_refusal(p, {"swiglu and k is grouped"});
  p = good_swiglu();
  p.groups.dimension = Grouping::n;
  p.b.stride_batch = p.d.stride_batch = 0;
  expect_refusal(p, {"swiglu and n is grouped"});
  for (const DType type : {DType::i8, DType::e4m3, DType::e5m2}) {
    p = good_swiglu();
    p.d.dtype = type;
    EXPECT_TRUE(validate(p).empty()) << to_string(type);
  }
  p = good_swiglu();
  p.d = column_major(30, 600);
  expect_refusal(p, {"d.stride_row is 1 and d.stride_col is 30", "row-major"});
}

}  // namespace
}  // namespace cleave

// The facts that follow from a problem.

#include "problem/problem.h"

#include <gtest/gtest.h>

#include "gemm_problems.h"

namespace cleave {
namespace {

TEST(Problem, TransposedExchangesTheRoles) {
  GemmProblem p = good();
  p.bias = Bias::row;
  p.c = row_major(25, 777);
  const GemmProblem t = transposed(p);
  EXPECT_EQ(t.m, p.n);
  EXPECT_EQ(t.n, p.m);
  EXPECT_EQ(t.a, (MatrixLayout{.stride_row = 1, .stride_col = 20, .stride_batch = 1000}));
  EXPECT_EQ(t.b, (MatrixLayout{.stride_row = 1, .stride_col = 50, .stride_batch = 1500}));
  EXPECT_EQ(t.c, (MatrixLayout{.stride_row = 1, .stride_col = 25, .stride_batch = 777}));
  EXPECT_EQ(t.bias, Bias::column);
  EXPECT_EQ(output_order(p), Order::row);
  EXPECT_EQ(output_order(t), Order::column);
  EXPECT_EQ(transposed(t), p);
}

TEST(Problem, BytesCountSharedOperandsOnce) {
  GemmProblem p = good();
  EXPECT_EQ(flops(p), 2.0 * 30 * 20 * 50 * 3);
  EXPECT_EQ(minimum_bytes(p), 2.0 * (1500 + 1000 + 600) * 3);
  p.b.stride_batch = 0;
  p.has_c = true;
  p.bias = Bias::column;
  p.bias_dtype = DType::f32;
  EXPECT_EQ(minimum_bytes(p), 2.0 * (1500 * 3 + 1000 + 600 * 3 + 600 * 3) + 4.0 * 30);
}

TEST(Problem, TransposedExchangesScales) {
  GemmProblem p = good_scaled();
  p.scale_b.stride_row = 5;
  EXPECT_EQ(transposed(p).scale_a, p.scale_b);
  EXPECT_EQ(transposed(p).scale_b, p.scale_a);
  EXPECT_EQ(transposed(transposed(p)), p);
  const float scales[2] = {};
  const int32_t zeros[2] = {};
  const GemmArguments t =
      transposed(GemmArguments{.scale_a = scales, .scale_b = scales + 1, .zero_a = zeros, .zero_b = zeros + 1});
  EXPECT_EQ(t.scale_a, scales + 1);
  EXPECT_EQ(t.scale_b, scales);
  EXPECT_EQ(t.zero_a, zeros + 1);
  EXPECT_EQ(t.zero_b, zeros);
}

TEST(Problem, BytesCountScales) {
  GemmProblem p = good_scaled();
  const double without = 1.0 * (1500 + 1000) * 3 + 2.0 * 600 * 3;
  EXPECT_EQ(minimum_bytes(p), without + 4.0 * (30 + 20) * 3);
  p.scale_a.stride_batch = 0;  // shared
  p.scale_b.stride_row = 0;    // one per batch entry
  EXPECT_EQ(minimum_bytes(p), without + 4.0 * (30 + 3));
  p.has_zero = p.has_scale_d = p.has_amax = true;
  EXPECT_EQ(minimum_bytes(p), without + 4.0 * (30 + 3) + 4.0 * (30 + 20) + 4.0 + 4.0);

  p = good_blocks();
  EXPECT_EQ(minimum_bytes(p), 1.0 * (9000 + 6000) * 3 + 2.0 * 600 * 3 + 4.0 * (30 * 3 * 3 + 3));
}

TEST(Problem, TransposedExchangesGroupedDimensions) {
  GemmProblem p = good_m_groups();
  p.bias = Bias::row;
  p.bias_stride_batch = 20;
  const GemmProblem t = transposed(p);
  EXPECT_EQ(t.groups.dimension, Grouping::n);
  EXPECT_EQ(t.bias, Bias::column);
  EXPECT_EQ(t.bias_stride_batch, 20);
  EXPECT_TRUE(t.groups.zero_rest);
  EXPECT_EQ(transposed(t), p);
  EXPECT_EQ(validate(t), kFine);
  EXPECT_EQ(transposed(good_k_groups()).groups, good_k_groups().groups);
}

TEST(Problem, SwigluTakesTwoColumnsForOne) {
  GemmProblem p = good_swiglu();
  EXPECT_EQ(columns_of_b(p), 40);
  EXPECT_EQ(flops(p), 2.0 * 30 * 40 * 50 * 3);
  EXPECT_EQ(minimum_bytes(p), 2.0 * (1500 + 2000 + 600) * 3);
  p.bias = Bias::row;
  EXPECT_EQ(minimum_bytes(p), 2.0 * (1500 + 2000 + 600) * 3 + 2.0 * 40);
  EXPECT_EQ(columns_of_b(good()), 20);
}

TEST(Problem, GroupsCountWhatIsCutOnce) {
  GemmProblem p = good_m_groups();
  EXPECT_EQ(flops(p), 2.0 * 30 * 20 * 50);
  EXPECT_EQ(minimum_bytes(p), 2.0 * (1500 + 3 * 1000 + 600) + 4.0 * 3);
  p.groups.bounds = GroupBounds::starts;
  EXPECT_EQ(minimum_bytes(p), 2.0 * (1500 + 3 * 1000 + 600) + 4.0 * 6);
  p.groups.wide = true;
  p.bias = Bias::row;
  p.bias_stride_batch = 20;
  EXPECT_EQ(minimum_bytes(p), 2.0 * (1500 + 3 * 1000 + 600) + 8.0 * 6 + 2.0 * 60);
  p = good_k_groups();
  EXPECT_EQ(flops(p), 2.0 * 30 * 20 * 50);
  EXPECT_EQ(minimum_bytes(p), 2.0 * (1500 + 1000 + 3 * 600) + 4.0 * 3);
}

TEST(Problem, ScalesOfGroupsGoWithTheirOperands) {
  GemmProblem p = good_scaled();
  const double bounds = 4.0 * 3;
  p.groups.dimension = Grouping::m;
  p.scale_a.stride_batch = 0;
  EXPECT_EQ(minimum_bytes(p), 1500 + 3 * 1000 + 2.0 * 600 + bounds + 4.0 * (30 + 3 * 20));
  p.groups.dimension = Grouping::k;
  p.scale_a.stride_batch = 30;
  EXPECT_EQ(minimum_bytes(p), 1500 + 1000 + 3 * 2.0 * 600 + bounds + 4.0 * 3 * (30 + 20));
  p = good_blocks();
  p.groups.dimension = Grouping::k;
  p.scale_a.stride_batch = 0;
  EXPECT_EQ(minimum_bytes(p), 9000 + 6000 + 3 * 2.0 * 600 + bounds + 4.0 * (30 * 3 + 3));
}

TEST(Problem, SumsAreIntegers) {
  EXPECT_FALSE(sums_are_integers(good()));
  EXPECT_TRUE(sums_are_integers(good_scaled()));
  EXPECT_FALSE(sums_are_integers(good_scaled(DType::e4m3)));
  EXPECT_FALSE(sums_are_integers(good_blocks(DType::i8)));
}

}  // namespace
}  // namespace cleave

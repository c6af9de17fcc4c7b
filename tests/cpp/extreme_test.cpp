// Numbers at the ends of their types: rules refuse what they cannot serve, and nothing overflows on
// the way there (built with -fsanitize=undefined, these tests show it).

#include <gtest/gtest.h>

#include <limits>

#include "cleave/conv.h"
#include "cleave/core/saturate.h"
#include "cleave/epilogue.h"
#include "cleave/gemm.h"
#include "cleave/moe.h"
#include "cleave/quantize.h"
#include "moe/launches.h"
#include "quantize/launches.h"
#include "random.h"

namespace cleave {
namespace {

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int kProblems = 20000;

int64_t number(Random& random) {
  constexpr int64_t kEnds[] = {kLeast,
                               kLeast + 1,
                               -(int64_t(1) << 31),
                               -1,
                               0,
                               1,
                               2,
                               127,
                               128,
                               129,
                               1 << 20,
                               (int64_t(1) << 31) - 1,
                               int64_t(1) << 31,
                               int64_t(1) << 62,
                               kMost - 1,
                               kMost};
  return random.pick(kEnds);
}

/// More often a number that will do, so that all rules are reached.
int64_t size(Random& random) {
  return random.coin() ? random.number(0, 300) : number(random);
}

int32_t narrow(Random& random) {
  return int32_t(random.coin() ? random.number(0, 5) : number(random));
}

MatrixLayout layout(Random& random) {
  return {.dtype = DType(random.number(0, 6)),
          .stride_row = size(random),
          .stride_col = random.coin() ? 1 : size(random),
          .stride_batch = size(random),
          .alignment = uint32_t(random.coin() ? 16 : number(random))};
}

ScaleLayout scales(Random& random) {
  return {.kind = Scaling(random.number(0, 2)),
          .rows = uint32_t(random.coin() ? 128 : number(random)),
          .stride_row = size(random),
          .stride_k = size(random),
          .stride_batch = size(random)};
}

ConvLayout convolution(Random& random) {
  ConvLayout conv{
      .kind = Conv(random.number(1, 3)), .images = size(random), .channels = size(random), .filters = size(random)};
  for (ConvAxis& axis : conv.axes) {
    axis = {.size = narrow(random),
            .filter = narrow(random),
            .stride = narrow(random),
            .pad_begin = narrow(random),
            .pad_end = narrow(random),
            .dilation = narrow(random)};
  }
  return conv;
}

TEST(Extreme, NumbersThatSaturate) {
  EXPECT_EQ(saturating_sum(kMost, 1), kMost);
  EXPECT_EQ(saturating_sum(kLeast, -1), kLeast);
  EXPECT_EQ(saturating_sum(kLeast, kMost), -1);
  EXPECT_EQ(saturating_product(kMost, 2), kMost);
  EXPECT_EQ(saturating_product(kMost, -2), kLeast);
  EXPECT_EQ(saturating_product(kLeast, -1), kMost);
  EXPECT_EQ(saturating_product(-3, 7), -21);
}

TEST(Extreme, ProductsAreJudged) {
  Random random(1);
  int refused = 0;
  for (int i = 0; i < kProblems; ++i) {
    GemmProblem p{.m = size(random),
                  .n = size(random),
                  .k = size(random),
                  .batch = size(random),
                  .a = layout(random),
                  .b = layout(random),
                  .c = layout(random),
                  .d = layout(random),
                  .has_c = random.coin(),
                  .bias = Bias(random.number(0, 2)),
                  .bias_stride_batch = size(random),
                  .epilogue = epilogue_of(Activation(random.number(0, 5))),
                  .scale_a = scales(random),
                  .scale_b = scales(random),
                  .groups = {.dimension = Grouping(random.number(0, 3)),
                             .bounds = GroupBounds(random.number(0, 4)),
                             .spacing = size(random)},
                  .split_k_slices = narrow(random),
                  .device = kCpu};
    if (random.number(0, 3) == 0) p.conv = convolution(random);
    refused += !validate(p).empty();
  }
  EXPECT_GT(refused, kProblems / 2);
}

TEST(Extreme, ConvolutionsAreJudged) {
  Random random(2);
  int refused = 0;
  for (int i = 0; i < kProblems; ++i) {
    const GemmProblem p = implicit_gemm(convolution(random), size(random), DType::f16, DType::f16);
    refused += !validate(p).empty();
  }
  EXPECT_GT(refused, kProblems / 2);
}

TEST(Extreme, QuantisationsAreJudgedAndDealt) {
  Random random(3);
  int refused = 0;
  for (int i = 0; i < kProblems; ++i) {
    QuantizeProblem p{.rows = size(random),
                      .cols = size(random),
                      .granularity = Granularity(random.number(0, 3)),
                      .x = layout(random),
                      .q = layout(random),
                      .scale = layout(random),
                      .has_smooth = random.coin(),
                      .has_transpose = random.coin(),
                      .q_t = layout(random),
                      .scale_t = layout(random),
                      .groups = random.coin() ? 0 : size(random),
                      .device = kCpu};
    p.x.dtype = DType::f32;
    p.q.dtype = p.q_t.dtype = DType::i8;
    p.scale.dtype = p.scale_t.dtype = DType::f32;
    if (validate(p).empty()) {
      quantize_launches(p, {.num_sms = 132});
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, kProblems / 2);
}

TEST(Extreme, StepsOfExpertsAreJudgedAndDealt) {
  Random random(4);
  int refused = 0;
  for (int i = 0; i < kProblems; ++i) {
    MoeProblem p{.operation = MoeOperation(random.number(0, 5)),
                 .tokens = size(random),
                 .top_k = random.coin() ? 1 : size(random),
                 .experts = random.coin() ? 8 : size(random),
                 .columns = size(random),
                 .token = layout(random),
                 .row = layout(random),
                 .row_grad = layout(random),
                 .device = kCpu};
    p.has_weights = p.operation == MoeOperation::combine_backward;
    p.token.dtype = p.row.dtype = p.row_grad.dtype = DType::f32;
    if (validate(p).empty()) {
      moe_launches(p);
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, kProblems / 2);
}

}  // namespace
}  // namespace cleave

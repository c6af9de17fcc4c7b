#include "plan/problem_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cleave/device.h"
#include "conv_problems.h"
#include "gemm_problems.h"
#include "plan/catalogue/candidates.h"
#include "problem/problem.h"
#include "random.h"

namespace cleave {
namespace {

/// What a text must keep: the planner's choice among all candidates, each with its predicted time.
std::vector<std::string> ranking(GemmProblem p) {
  p.device = kPlanOnlyH100;
  std::vector<std::string> names;
  for (const Choice& c : candidates(p, device_info(p.device)))
    names.push_back(to_string(c.spec) + ' ' + std::to_string(std::lround(c.predicted_us * 1000)));
  return names;
}

void expect_round_trip(const GemmProblem& p) {
  const std::string text = problem_text(p);
  const auto parsed = parse_problem(text);
  ASSERT_TRUE(parsed) << text;
  EXPECT_EQ(problem_text(*parsed), text);
  EXPECT_EQ(validate(*parsed), kFine) << text;
  EXPECT_EQ(ranking(*parsed), ranking(p)) << text;
}

GemmProblem aligned() {
  GemmProblem p{.m = 256, .n = 128, .k = 512, .a = row_major(512), .b = column_major(512), .d = row_major(128)};
  p.c = p.d;
  return p;
}

TEST(ProblemText, SaysWhatIsNotPlain) {
  EXPECT_EQ(problem_text(aligned()), "256x128x512x1 tn bfloat16 bfloat16");
  GemmProblem p = aligned();
  p.bias = Bias::row;
  p.epilogue = epilogue_of(Activation::gelu_tanh);
  EXPECT_EQ(problem_text(p), "256x128x512x1 tn bfloat16 bfloat16 bias row bfloat16 gelu_tanh");
  p = aligned();
  p.has_c = true;
  p.c.dtype = DType::f32;
  p.a.alignment = 4;
  EXPECT_EQ(problem_text(p), "256x128x512x1 tn bfloat16 bfloat16 c float32 lines 4 16 16");
  EXPECT_EQ(problem_text(good_m_groups()), "30x20x50x3 tt bfloat16 bfloat16 grouped m");
  EXPECT_EQ(problem_text(good_blocks()), "30x20x300x3 tt float8_e4m3fn bfloat16 blocks 1x128");
  EXPECT_EQ(problem_text(good_conv(Conv::fprop)),
            "40x10x36x1 tn bfloat16 bfloat16 fprop 1:1/1p0,0d1 9:3/2p1,1d1 8:2/2p0,1d1");
}

TEST(ProblemText, OfRowsThatAListNames) {
  GemmProblem p = good_m_groups();
  p.gather = {.given = true, .rows = 9, .divisor = 4};
  EXPECT_EQ(problem_text(p), "30x20x50x3 tt bfloat16 bfloat16 grouped m gather 9 by 4");
  expect_round_trip(p);
  EXPECT_FALSE(parse_problem("30x20x50x3 tt bfloat16 bfloat16 grouped m gather 9 by 0"));
  EXPECT_FALSE(parse_problem("30x20x50x3 tt bfloat16 bfloat16 gather 9 by 4"));
}

TEST(ProblemText, OfGroupsThatAreExpectedToHaveFewRows) {
  GemmProblem p = good_m_groups();
  p.groups.expected_m = 6;
  EXPECT_EQ(problem_text(p), "30x20x50x3 tt bfloat16 bfloat16 grouped m expected 6");
  expect_round_trip(p);
  p.gather = {.given = true, .rows = 9, .divisor = 4};
  expect_round_trip(p);
}

TEST(ProblemText, WhatIsAskedOfThePlannerIsNoPartOfIt) {
  GemmProblem p = aligned();
  const std::string text = problem_text(p);
  p.split_k_mode = SplitKMode::parallel;
  p.split_k_slices = 4;
  p.kernel = KernelFamily::portable;
  p.device = 3;
  EXPECT_EQ(problem_text(p), text);
}

TEST(ProblemText, EverythingComesBack) {
  for (GemmProblem p : {aligned(), good(), good_scaled(), good_scaled(DType::e4m3), good_blocks(),
                        good_blocks(DType::i8), good_m_groups(), good_k_groups(), good_swiglu()}) {
    expect_round_trip(p);
    p.bias = Bias::row;
    if (activation_of(p) == Activation::none) p.epilogue = epilogue_of(Activation::silu);
    expect_round_trip(p);
    p.has_c = activation_of(p) != Activation::swiglu;
    p.c.dtype = DType::f32;
    expect_round_trip(p);
  }
  GemmProblem p = good_scaled();
  p.has_zero = p.has_amax = true;
  expect_round_trip(p);
  p = good_scaled(DType::e4m3);
  p.b.dtype = DType::e5m2;
  p.d.dtype = DType::e4m3;
  p.has_scale_d = p.fast_accumulation = true;
  expect_round_trip(p);
  p = good_blocks();
  p.d.dtype = DType::e4m3;
  p.scale_out = {.kind = Scaling::block, .stride_row = 1, .stride_k = p.m};
  expect_round_trip(p);
  p.ue8m0_scale_out = true;
  expect_round_trip(p);
  for (const Conv kind : kConvs) {
    for (const int groups : {1, 3}) expect_round_trip(good_conv(kind, groups));
    GemmProblem conv = good_conv(kind);
    conv.conv.division = Division::plain;
    expect_round_trip(conv);
  }
}

TEST(ProblemText, LinesAndBatchesComeBack) {
  GemmProblem p = aligned();
  p.batch = 4;
  p.a.stride_batch = 256 * 512;  // and B is shared
  p.c.stride_batch = p.d.stride_batch = 256 * 128;
  EXPECT_NE(problem_text(p).find(" broadcast b"), std::string::npos);
  expect_round_trip(p);
  Random random(1);
  for (int i = 0; i < 200; ++i) {
    GemmProblem q;
    const auto size = [&] { return random.coin() ? 1 : random.number(1, 70); };
    q.m = size(), q.n = size(), q.k = size();
    const auto matrix = [&](int64_t rows, int64_t columns) {
      const bool by_rows = random.coin();
      const int64_t stride = (by_rows ? columns : rows) + random.number(0, 2) * 4;
      return MatrixLayout{.stride_row = by_rows ? stride : 1,
                          .stride_col = by_rows ? 1 : stride,
                          .alignment = 2u << random.number(0, 3)};
    };
    q.a = matrix(q.m, q.k), q.b = matrix(q.k, q.n), q.d = matrix(q.m, q.n);
    q.c = q.d;
    ASSERT_EQ(validate(q), kFine);
    expect_round_trip(q);
  }
}

TEST(ProblemText, WhatIsSpelledOtherwiseIsNone) {
  for (const char* text : {"",
                           " ",
                           "256",
                           "256x128x512 tn bfloat16 bfloat16",
                           "256x128x512x1 tn bfloat16",
                           "256x128x512x1 tn bf16 bf16",
                           "-256x128x512x1 tn bfloat16 bfloat16",
                           "99999999999x128x512x1 tn bfloat16 bfloat16",
                           "256x128x512x1 tn bfloat16 bfloat16 ",
                           "256x128x512x1  tn bfloat16 bfloat16",
                           "256x128x512x1 xn bfloat16 bfloat16",
                           "256x128x512x1 tn bfloat16 bfloat16 none",
                           "256x128x512x1 tn bfloat16 bfloat16 bias",
                           "256x128x512x1 tn bfloat16 bfloat16 by bfloat16",
                           "256x128x512x1 tn bfloat16 bfloat16 lines 16 16 16",
                           "256x128x512x1 tn bfloat16 bfloat16 gelu c float32",
                           "256x128x512x1 tn bfloat16 bfloat16 blocks 0x0",
                           "256x128x512x1 tn bfloat16 bfloat16 grouped none",
                           "256x128x512x1 tn bfloat16 bfloat16 fprop",
                           "41x10x36x1 tn bfloat16 bfloat16 fprop 1:1/1p0,0d1 9:3/2p1,1d1 8:2/2p0,1d1",
                           "40x10x36x1 tn bfloat16 bfloat16 fprop 1:1/0p0,0d1 9:3/2p1,1d1 8:2/2p0,1d1",
                           "40x10x36x1 tn bfloat16 bfloat16 fprop 2147483647:2147483647/1p2147483647,0d2147483647 "
                           "9:3/2p1,1d1 8:2/2p0,1d1"}) {
    EXPECT_FALSE(parse_problem(text)) << text;
  }
}

}  // namespace
}  // namespace cleave

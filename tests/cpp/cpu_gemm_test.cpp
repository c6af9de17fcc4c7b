// The CPU backend against double, in every mode, layout, type and epilogue.

#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "cpu_gemm_check.h"

namespace cleave {
namespace {

Shape draw_shape(Random& random) {
  const int64_t sizes[] = {1, 2, random.number(3, 20), random.number(21, 140), random.number(121, 300)};
  const int64_t depths[] = {0, 1, random.number(2, 40), random.number(41, 300), random.number(300, 1500)};
  Shape shape{random.pick(sizes), random.pick(sizes), random.pick(depths), random.number(1, 3)};
  if (shape.m * shape.n * shape.k > 10'000'000) shape.k = 100;
  return shape;
}

// Small integers: products and sums are exact in float32, so that one k block missed or added
// twice, one scale or element of bias or C misplaced, shows in D bit by bit.
TEST(CpuGemm, IntegersAreExact) {
  Random random(1);
  for (int round = 0; round < 60; ++round) {
    for (const SplitKMode mode : kModes) {
      Case x(random, draw_shape(random), any_kinds(random), true);
      x.problem.split_k_mode = mode;
      x.problem.split_k_slices = draw_slices(random, mode, x.problem.k);
      if (x.problem.d.dtype != DType::i32) {
        x.problem.epilogue = epilogue_of(random.pick({Activation::none, Activation::relu}));
      }
      expect_correct(x, uint32_t(random.number(1, 4)), true);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(CpuGemm, RealsAndActivationsAreClose) {
  Random random(2);
  for (int round = 0; round < 25; ++round) {
    for (const SplitKMode mode : kModes) {
      Case x(random, draw_shape(random), any_kinds(random), false);
      x.problem.split_k_mode = mode;
      x.problem.split_k_slices = draw_slices(random, mode, x.problem.k);
      if (x.problem.d.dtype != DType::i32) {
        x.problem.epilogue = epilogue_of(random.pick(kElementwise));
      }
      expect_correct(x, uint32_t(random.number(1, 4)), false);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(CpuGemm, SwigluJoinsGatesAndUps) {
  Random random(9);
  for (int round = 0; round < 25; ++round) {
    for (const SplitKMode mode : kModes) {
      Kinds kinds = any_kinds(random);
      kinds.d = random.pick(kTypes);
      Case x(random, draw_shape(random), kinds, false, {.swiglu = true});
      x.problem.split_k_mode = mode;
      x.problem.split_k_slices = draw_slices(random, mode, x.problem.k);
      expect_correct(x, uint32_t(random.number(1, 4)), false);
      if (HasFatalFailure()) return;
    }
  }
}

// Sums that float32 cannot hold.
TEST(CpuGemm, IntegerSumsAreExactForAnyK) {
  Random random(7);
  for (const SplitKMode mode : kModes) {
    for (const Shape shape : {Shape{7, 19, 66007}, Shape{130, 150, 1500}}) {
      Case x(random, shape, {DType::i8, DType::i8, DType::i32}, true);
      for (Tensor* operand : {&x.a, &x.b}) {
        std::generate(operand->bytes.begin(), operand->bytes.end(),
                      [&] { return uint8_t(random.coin() ? 127 : random.number(-128, 127)); });
      }
      x.problem.split_k_mode = mode;
      x.problem.split_k_slices = draw_slices(random, mode, shape.k);
      expect_correct(x, 2, true);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(CpuGemm, IntegerSumsWrapWhereInt32Ends) {
  constexpr int64_t k = 131072;  // 2^17 products of 2^14
  const std::vector<int8_t> operand(k, -128);
  for (const SplitKMode mode : kModes) {
    const GemmProblem p{.m = 1,
                        .n = 1,
                        .k = k,
                        .a = {.dtype = DType::i8, .stride_row = k, .alignment = 1},
                        .b = {.dtype = DType::i8, .stride_row = 1, .alignment = 1},
                        .d = {.dtype = DType::i32, .stride_row = 1, .alignment = 4},
                        .split_k_mode = mode,
                        .device = kCpu};
    ASSERT_EQ(validate(p), std::vector<std::string>{});
    int32_t d = 0;
    make_cpu_plan(p, 2)->run({.a = operand.data(), .b = operand.data(), .d = &d}, nullptr);
    EXPECT_EQ(d, std::numeric_limits<int32_t>::min()) << to_string(mode);
  }
}

TEST(CpuGemm, ScalesOfZeroAndNaNStayInTheirRows) {
  Random random(8);
  for (const Scaling kind : {Scaling::vector, Scaling::block}) {
    for (const DType type : kNarrowTypes) {
      Case x(random, {9, 5, 300}, {type, type, DType::f32, kind}, true);
      x.problem.has_c = x.problem.has_zero = false;
      x.problem.bias = Bias::none;
      x.problem.has_amax = true;
      x.alpha = 1;
      ScaleLayout& layout = x.problem.scale_a;
      layout = {.kind = kind, .stride_row = 1, .stride_k = 9};
      x.scale_a.layout = layout;
      x.scale_a.values.assign(9 * 3, 1.0f);
      for (int block = 0; block < 3; ++block) x.scale_a.values[block * 9 + 3] = 0.0f;
      x.scale_a.values[4] = NAN;
      x.amax = 0;
      make_cpu_plan(x.problem, 2)->run(x.arguments(), nullptr);
      for (int64_t i = 0; i < 9; ++i) {
        for (int64_t j = 0; j < 5; ++j) {
          if (i == 4) {
            EXPECT_TRUE(std::isnan(x.d.get(0, i, j)));
          } else {
            EXPECT_EQ(x.d.get(0, i, j), i == 3 ? 0 : x.expected(0, i, j));
          }
        }
      }
      EXPECT_TRUE(std::isnan(x.amax));
      make_cpu_plan(x.problem, 1)->run(x.arguments(), nullptr);
      EXPECT_TRUE(std::isnan(x.amax)) << "a NaN of an earlier launch is not forgotten";
    }
  }
}

TEST(CpuGemm, TheSumOfNothingIsZeroWhateverItsScales) {
  Random random(9);
  for (const Scaling kind : {Scaling::vector, Scaling::block}) {
    for (const DType type : kNarrowTypes) {
      for (int round = 0; round < 4; ++round) {
        Case x(random, {9, 5, 0, 2}, {type, type, DType::f32, kind}, true);
        for (float& scale : x.scale_a.values) scale = INFINITY;
        for (float& scale : x.scale_b.values) scale = NAN;
        expect_correct(x, 2, true);
      }
    }
  }
}

TEST(CpuGemm, CMayBeDExactly) {
  Random random(3);
  for (const SplitKMode mode : kModes) {
    Case x(random, {130, 140, 700, 2}, wide_kinds(random), true);
    x.problem.has_c = true;
    x.problem.c = x.problem.d;
    x.problem.split_k_mode = mode;
    x.beta = -1;
    for (int64_t e = 0; e < 2; ++e) {
      for (int64_t i = 0; i < 130; ++i) {
        for (int64_t j = 0; j < 140; ++j) x.d.set(e, i, j, float(random.number(-9, 9)));
      }
    }
    x.c = x.d;
    Tensor want = x.d;
    for (int64_t e = 0; e < 2; ++e) {
      for (int64_t i = 0; i < 130; ++i) {
        for (int64_t j = 0; j < 140; ++j) want.set(e, i, j, float(x.expected(e, i, j)));
      }
    }
    GemmArguments arguments = x.arguments();
    arguments.c = arguments.d;
    make_cpu_plan(x.problem, 3)->run(arguments, nullptr);
    SCOPED_TRACE(text(x.problem));
    expect_same_bytes(x.d, want);
  }
}

TEST(CpuGemm, BitwiseRepeatableForAnyThreadCount) {
  Random random(4);
  for (const SplitKMode mode : kModes) {
    // Deep enough that 16 threads are worth starting; 3 x 3 ragged tiles.
    for (const Shape shape : {Shape{97, 90, 5003}, Shape{250, 260, 901}, Shape{70, 33, 2500, 3}}) {
      Case x(random, shape, any_kinds(random), false);
      x.problem.split_k_mode = mode;
      x.problem.split_k_slices = mode == SplitKMode::none || random.coin() ? 0 : 7;
      SCOPED_TRACE(text(x.problem));
      expect_equal_bits(x, {1u, 2u, 3u, 5u, 16u, 3u});
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

TEST(CpuGemm, OnePlanServesManyCallers) {
  Random random(5);
  Case x(random, {100, 90, 3000}, wide_kinds(random), true);
  x.problem.split_k_mode = SplitKMode::serial;
  const auto plan = make_cpu_plan(x.problem, 2);
  expect_correct(x, 2, true);
  std::vector<Tensor> outputs(4, x.d);
  std::vector<std::jthread> callers;
  for (Tensor& d : outputs) {
    std::fill(d.bytes.begin(), d.bytes.end(), 0xEE);
    callers.emplace_back([&] {
      GemmArguments arguments = x.arguments();
      arguments.d = d.data();
      plan->run(arguments, nullptr);
    });
  }
  callers.clear();
  for (const Tensor& d : outputs) EXPECT_EQ(d.bytes, x.d.bytes);
}

TEST(CpuGemm, EmptyResultsTouchNothing) {
  for (const SplitKMode mode : kModes) {
    for (const Shape shape : {Shape{0, 5, 5}, Shape{5, 0, 5}, Shape{5, 5, 5, 0}, Shape{0, 0, 0}}) {
      GemmProblem p{.m = shape.m, .n = shape.n, .k = shape.k, .batch = shape.batch};
      p.a.stride_row = p.b.stride_row = p.d.stride_row = 5;
      p.split_k_mode = mode;
      p.device = kCpu;
      ASSERT_EQ(validate(p), std::vector<std::string>{});
      EXPECT_NO_THROW(make_cpu_plan(p, 2)->run({}, nullptr));
    }
  }
}

TEST(CpuGemm, RefusesBadArgumentsAndKeepsD) {
  Random random(6);
  Case x(random, {50, 60, 900}, wide_kinds(random), true);
  x.problem.split_k_mode = SplitKMode::parallel;
  x.problem.split_k_slices = 4;
  const auto plan = make_cpu_plan(x.problem, 2);
  const auto before = x.d.bytes;
  GemmArguments arguments = x.arguments();
  arguments.a = nullptr;
  EXPECT_THROW(plan->run(arguments, nullptr), Error);
  PlanWorkspace workspace(*plan);
  EXPECT_THROW(plan->run(x.arguments(), workspace.data(), workspace.size() - 1, nullptr), Error);
  EXPECT_EQ(x.d.bytes, before);
}

TEST(CpuGemm, WorkspaceIsWhatTheModeNeeds) {
  GemmProblem p{.m = 120,
                .n = 256,
                .k = 4096,
                .a = {.stride_row = 4096},
                .b = {.stride_row = 256},
                .d = {.stride_row = 256},
                .split_k_slices = 8,
                .device = kCpu};
  constexpr size_t kTile = 120 * 128 * sizeof(float);
  const auto size = [&](SplitKMode mode) {
    p.split_k_mode = mode;
    return make_cpu_plan(p, 2)->workspace_size();
  };
  EXPECT_EQ(size(SplitKMode::serial), 16 + 2 * kTile);
  EXPECT_EQ(size(SplitKMode::parallel), 16 + 2 * 8 * kTile);
  EXPECT_EQ(size(SplitKMode::cluster), 0u);
  EXPECT_EQ(size(SplitKMode::stream_k), 16 + 2 * 16 * kTile);
  p.split_k_slices = 1;
  EXPECT_EQ(size(SplitKMode::serial), 0u);
}

TEST(CpuGemm, AutomaticSplitsATallProductAndSaysSo) {
  GemmProblem p{.m = 100,
                .n = 100,
                .k = 336776,
                .a = {.stride_row = 1, .stride_col = 100},
                .b = {.stride_row = 100},
                .d = {.stride_row = 100},
                .device = kCpu};
  const auto two = make_cpu_plan(p, 2), many = make_cpu_plan(p, 64);
  EXPECT_NE(two->split_k_mode(), SplitKMode::none);
  EXPECT_EQ(two->split_k_mode(), many->split_k_mode());
  EXPECT_EQ(two->split_k_slices(), many->split_k_slices());
  EXPECT_NE(two->why().find("over"), std::string::npos);
  const auto candidates = two->candidates();
  ASSERT_GT(candidates.size(), 3u);
  for (size_t i = 1; i < candidates.size(); ++i) {
    EXPECT_LE(candidates[i - 1].predicted_us, candidates[i].predicted_us);
  }
  EXPECT_GT(two->roofline_us(), many->roofline_us());

  p.k = 64;
  EXPECT_EQ(make_cpu_plan(p, 2)->split_k_mode(), SplitKMode::none);
}

}  // namespace
}  // namespace cleave

// A product of a packed weight in two launches: the second is that of a weight that begins further down.
#include "emit_cases.h"
#include "emitted_project.h"
#include "expect_equal.h"
#include "plan/make_plan.h"

namespace cleave {
namespace {

constexpr int64_t kTokens = 256, kRows = 28672, kFeatures = 4096;

GemmProblem matrices() {
  return product(kTokens, kRows, kFeatures, DType::bf16, DType::bf16);
}

template <class T>
T* behind(T* at, int64_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(at) + uintptr_t(bytes));
}

/// `first`: rows of the weight that the first launch has; `scale_bytes`: of one.
void check(const GemmProblem& whole, int64_t first, int64_t scale_bytes) {
  const auto both = plan(whole);
  const std::string name = both->kernel_name();
  const size_t comma = name.find(", ");
  ASSERT_NE(comma, std::string::npos) << name;
  EXPECT_EQ(both->kernel_sources().size(), 2u);
  EXPECT_EQ(both->workspace_size(), 0u);
  GemmProblem part = whole;
  part.n = whole.n - first;
  const auto spec = parse_spec(name.substr(comma + 2));
  ASSERT_TRUE(spec.has_value()) << name;

  const GemmArguments all = some_arguments(whole);
  GemmArguments own = all;
  own.b = behind(all.b, first * kFeatures / 2);
  own.c = all.c == nullptr ? nullptr : behind(all.c, first * 2);
  own.d = behind(all.d, first * 2);
  own.bias = all.bias == nullptr ? nullptr : behind(all.bias, first * int64_t(size_of(whole.bias_dtype)));
  own.scale_b = all.scale_b == nullptr ? nullptr : all.scale_b + first * whole.scale_b.stride_row;
  own.weight_scale = behind(all.weight_scale, first * scale_bytes);
  own.weight_zero = all.weight_zero == nullptr ? nullptr : all.weight_zero + first;
  const int before = fake_driver_last_launch()->count;
  const Launch x = launch(*both, all);
  EXPECT_EQ(x.count - before, 2);
  const Launch y = launch(*plan_as(part, *spec), own);
  EXPECT_EQ(x.blocks, y.blocks);
  const GemmParams &params = x.params(), &of_part = y.params();
  expect_equal("map_b", params.map_b, of_part.map_b);
  expect_equal("map_d", params.map_d, of_part.map_d);
  expect_equal(params.size, of_part.size);
  expect_equal(params.schedule, of_part.schedule, false);
  expect_equal(params.epilogue, of_part.epilogue, false);
  expect_equal(params.scales_a, of_part.scales_a, false);
  EXPECT_EQ(params.weights.scales, of_part.weights.scales);
  EXPECT_EQ(params.weights.zeros, of_part.weights.zeros);
  EXPECT_EQ(params.weights.stride_k, whole.n);
}

constexpr int64_t kTallWave = 132 / 2 * 256, kThreeWaves = 3 * 132 / 2 * 128;  // of tiles, two of which have all tokens

TEST(TwoHeightsLaunch, TheSecondBeginsWhereTheFirstEnds) {
  check(packed(matrices(), WeightFormat::int4, 128, true), kTallWave, 2);
  GemmProblem scaled = packed(with_epilogue(matrices()), WeightFormat::nvfp4, 16);
  check(scaled, kThreeWaves, 1);
  scaled.scale_b.stride_row = 1;
  check(scaled, kThreeWaves, 1);
}

TEST(TwoHeightsLaunch, OneLaunchWhereSomethingHangsOnIt) {
  const auto name = [](const auto& change) {
    GemmProblem p = packed(matrices(), WeightFormat::int4, 128);
    change(p);
    return plan(p)->kernel_name();
  };
  EXPECT_NE(name([](GemmProblem&) {}).find(", "), std::string::npos);
  EXPECT_EQ(name([](GemmProblem& p) { p.split_k_mode = SplitKMode::none; }).find(", "), std::string::npos);
  EXPECT_EQ(name([](GemmProblem& p) { p.deterministic = Determinism::batch_invariant; }).find(", "), std::string::npos);
  EXPECT_EQ(name([](GemmProblem& p) { p.has_amax = true; }).find(", "), std::string::npos);
}

}  // namespace
}  // namespace cleave

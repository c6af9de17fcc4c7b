// Products on the CPU, and what to hold their results against.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "cleave/names.h"
#include "cpu/cpu_plan.h"
#include "cpu_gemm_case.h"

namespace cleave {

inline constexpr SplitKMode kModes[] = {SplitKMode::none,    SplitKMode::serial,   SplitKMode::parallel,
                                        SplitKMode::cluster, SplitKMode::stream_k, SplitKMode::automatic};

/// The plan's workspace with a canary after its end.
class PlanWorkspace {
 public:
  explicit PlanWorkspace(const GemmPlan& plan)
      : size_(plan.workspace_size()), counters_(plan.counter_size()), memory_(size_ + kCanary, 0xEE) {
    std::memset(memory_.data(), 0, counters_);
  }
  void* data() { return memory_.data(); }
  size_t size() const { return size_; }
  void expect_intact() const {
    for (size_t i = 0; i < counters_; ++i) ASSERT_EQ(memory_[i], 0) << "counter byte " << i;
    for (size_t i = size_; i < memory_.size(); ++i) ASSERT_EQ(memory_[i], 0xEE) << "beyond the end";
  }

 private:
  static constexpr size_t kCanary = 256;
  size_t size_, counters_;
  std::vector<unsigned char> memory_;
};

inline std::string text(const GemmProblem& p) {
  return testing::PrintToString(std::vector<int64_t>{p.m, p.n, p.k, p.batch, p.split_k_slices}) + " " +
         std::string(to_string(p.split_k_mode)) + " " + std::string(to_string(p.a.dtype)) + " x " +
         std::string(to_string(p.b.dtype)) + ", " + std::string(to_string(p.scale_a.kind)) + " -> " +
         std::string(to_string(p.d.dtype));
}

/// Elements, and the memory around and between them.
inline void expect_same_bytes(const Tensor& actual, const Tensor& expected) {
  const auto [x, y] = std::mismatch(actual.bytes.begin(), actual.bytes.end(), expected.bytes.begin());
  ASSERT_TRUE(x == actual.bytes.end()) << "byte " << x - actual.bytes.begin() << " of D's memory is " << int(*x)
                                       << ", not " << int(*y);
}

/// How far a result may be from `value`, rounded to D's type: the next value of that type, or the
/// rounding of float32 sums.
inline double tolerance(DType d, double value) {
  const double size = std::max(1.0, std::abs(value));
  switch (d) {
    case DType::f32:
      return 2e-5 * size;
    case DType::f16:
      return 1e-3 * size;
    case DType::bf16:
      return 8e-3 * size;
    case DType::e4m3:
      return 0.125 * size;
    case DType::e5m2:
      return 0.25 * size;
    case DType::i8:
      return 1;
    case DType::i32:
      return 0;
  }
  return 0;
}

/// Runs and compares all of D's memory: elements with their values, everything else with what was
/// there.
inline void expect_correct(Case& x, uint32_t threads, bool exact) {
  SCOPED_TRACE(text(x.problem));
  ASSERT_EQ(validate(x.problem), std::vector<std::string>{});
  const auto plan = make_cpu_plan(x.problem, threads);
  ASSERT_NE(plan->split_k_mode(), SplitKMode::automatic);
  PlanWorkspace workspace(*plan);
  Tensor want = x.d;
  double largest = x.amax;
  const double factor = x.problem.has_scale_d ? 1 / x.scale_d : 1;
  if (x.problem.groups.zero_rest) {
    for (int64_t i = 0; i < x.problem.m; ++i) {
      for (int64_t j = 0; j < x.problem.n; ++j) want.set(0, i, j, 0.0f);
    }
  }
  x.for_each([&](int64_t e, int64_t i, int64_t j) {
    const double value = x.expected(e, i, j);
    if (x.problem.has_amax) largest = std::max(largest, std::abs(value));
    if (x.problem.d.dtype == DType::i32) {
      want.set(e, i, j, int32_t(value));
    } else {
      want.set(e, i, j, float(value * factor));
    }
  });
  plan->run(x.arguments(), workspace.data(), workspace.size(), nullptr);
  workspace.expect_intact();
  if (exact) {
    EXPECT_EQ(x.amax, largest);
  } else {
    EXPECT_NEAR(x.amax, largest, 2e-5 * std::max(1.0, largest));
    x.for_each([&](int64_t e, int64_t i, int64_t j) {
      const float value = want.get(e, i, j);
      ASSERT_NEAR(x.d.get(e, i, j), value, tolerance(x.problem.d.dtype, value));
      want.set(e, i, j, x.d.get(e, i, j));
    });
  }
  expect_same_bytes(x.d, want);
}

inline int32_t draw_slices(Random& random, SplitKMode mode, int64_t k) {
  if (mode == SplitKMode::none || k == 0 || random.coin()) return 0;
  return int32_t(random.number(1, std::min<int64_t>(k, 16)));
}

/// However many threads there are, and in every run.
inline void expect_equal_bits(Case& x, std::initializer_list<uint32_t> thread_counts) {
  std::vector<unsigned char> first;
  for (const uint32_t threads : thread_counts) {
    const auto plan = make_cpu_plan(x.problem, threads);
    PlanWorkspace workspace(*plan);
    for (int run = 0; run < 2; ++run) {  // the second finds the counters as the first left them
      std::fill(x.d.bytes.begin(), x.d.bytes.end(), 0xEE);
      plan->run(x.arguments(), workspace.data(), workspace.size(), nullptr);
      workspace.expect_intact();
      if (first.empty()) first = x.d.bytes;
      ASSERT_TRUE(x.d.bytes == first) << threads << " threads, run " << run;
    }
  }
}

}  // namespace cleave

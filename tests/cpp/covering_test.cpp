#include "plan/measured/covering.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "base/embedded.h"
#include "cleave/device.h"
#include "conv_choice.h"
#include "conv_problems.h"
#include "gemm_problems.h"
#include "plan/catalogue/candidates.h"
#include "plan/catalogue/listed.h"
#include "random.h"

namespace cleave {
namespace {

GemmProblem product(DType type, int64_t m, int64_t n, int64_t k, bool fast = false) {
  GemmProblem p{.m = m, .n = n, .k = k, .fast_accumulation = fast, .device = kPlanOnlyH100};
  p.a = {.dtype = type, .stride_row = k};
  p.b = {.dtype = type, .stride_row = 1, .stride_col = k};
  p.c = p.d = {.stride_row = n};
  if (size_of(type) == 1) p.scale_a = p.scale_b = {.kind = Scaling::vector, .stride_row = 1};
  return p;
}

TEST(Covering, EveryLineIsAKernelOfAJobThatIsAskedFor) {
  std::map<std::string, size_t> sizes;
  for (const EmbeddedFile& file : covering_tables()) {
    std::istringstream table{std::string(file.text)};
    for (std::string line; std::getline(table, line);) {
      if (line.starts_with('#')) continue;
      const size_t bar = line.find(" | ");
      ASSERT_NE(bar, std::string::npos) << line;
      const std::string job = line.substr(0, bar);
      EXPECT_TRUE(std::ranges::any_of(covering_jobs(), [&](const char* known) { return job == known; })) << line;
      const auto spec = parse_spec(line.substr(bar + 3));
      ASSERT_TRUE(spec) << line;
      EXPECT_EQ(kernel_of(*spec), *spec) << line;
      Spec launched = *spec;
      if (launched.split == SplitKMode::parallel) launched.slices = 2 * launched.cluster_k;
      EXPECT_TRUE(is_listed(launched)) << line;
      ++sizes[job];
    }
  }
  EXPECT_GE(sizes.size(), 6u);
  for (const auto& [job, size] : sizes) EXPECT_LE(size, 48u) << job;
}

TEST(Covering, ProductsOfAllSizesKeepToTheSet) {
  Random random(3);
  const DeviceInfo& h100 = device_info(kPlanOnlyH100);
  for (const DType type : {DType::bf16, DType::f16, DType::e4m3, DType::i8, DType::f32}) {
    for (int i = 0; i < 20; ++i) {
      const GemmProblem p = product(type, random.number(1, 5000), random.number(1, 500) * 16,
                                    random.number(5, 500) * 64, type == DType::e4m3 && random.coin());
      const auto set = covering_set(p);
      ASSERT_FALSE(set.empty());
      const Cheapest best = cheapest(p, h100, Kernels::covering);
      ASSERT_TRUE(best.choice);
      const Spec kernel = kernel_of(best.choice->spec);
      EXPECT_NE(std::ranges::find(set, kernel), set.end()) << to_string(kernel);
      constexpr double kSplitGains = 1.01;  // at least, or the product stays whole
      EXPECT_LE(cheapest(p, h100, Kernels::all).choice->predicted_us, best.choice->predicted_us * kSplitGains);
    }
  }
}

TEST(Covering, WhatHasNoSetHasTheWholeCatalogue) {
  const DeviceInfo& h100 = device_info(kPlanOnlyH100);
  GemmProblem unaligned = product(DType::bf16, 64, 64, 100);
  unaligned.a.alignment = 2;
  GemmProblem exact = implicit_gemm(good_layout(Conv::fprop), 1, DType::f32, DType::f32);
  exact.precision = Precision::ieee;
  for (GemmProblem p : {good_m_groups(), exact, unaligned}) {
    p.device = kPlanOnlyH100;
    const Cheapest all = cheapest(p, h100, Kernels::all), few = cheapest(p, h100, Kernels::covering);
    ASSERT_TRUE(all.choice && few.choice);
    EXPECT_EQ(all.choice->spec, few.choice->spec);
  }
}

TEST(Covering, ConvolutionsKeepToTheSetOrAreDirect) {
  for (const Conv kind : {Conv::fprop, Conv::dgrad, Conv::wgrad}) {
    for (const auto& [channels, filters] : {std::pair{64, 128}, {96, 96}, {256, 512}, {8, 48}, {3, 64}}) {
      GemmProblem p = problem(layer(kind, channels, filters));
      p.device = kPlanOnlyH100;
      const auto set = covering_set(p);
      ASSERT_FALSE(set.empty());
      const Cheapest few = cheapest(p, h100(), Kernels::covering), all = cheapest(p, h100(), Kernels::all);
      ASSERT_TRUE(few.choice && all.choice);
      const Spec& spec = few.choice->spec;
      EXPECT_TRUE(spec.family == KernelFamily::direct || std::ranges::find(set, kernel_of(spec)) != set.end())
          << to_string(spec) << " of " << channels << " channels";
      EXPECT_LE(few.choice->predicted_us, all.choice->predicted_us * 2);
    }
  }
}

}  // namespace
}  // namespace cleave

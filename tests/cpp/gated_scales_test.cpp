// Gates whose D has scales that are found, where one kernel serves them beside Hopper's whole tiles: sums in turn, and
// GPUs before Hopper.
#include <gtest/gtest.h>

#include "cleave/device.h"
#include "expect_no_spills.h"
#include "gemm_problems.h"
#include "jit/source.h"
#include "plan/catalogue/candidates.h"
#include "plan/model_device.h"

namespace cleave {
namespace {

GemmProblem layer(DType type, ScaleLayout scale_a, ScaleLayout scale_b, bool grouped) {
  constexpr int64_t kM = 512, kN = 1024, kK = 2048;
  GemmProblem p{.m = kM,
                .n = kN,
                .k = kK,
                .a = row_major(kK, 0, type),
                .b = {.dtype = type, .stride_row = 1, .stride_col = kK},
                .d = row_major(kN, 0, DType::i8)};
  p.c = p.d;
  p.bias = Bias::row;
  p.epilogue = epilogue_of(Activation::swiglu);
  p.scale_a = scale_a;
  p.scale_b = scale_b;
  p.scale_out = {.kind = Scaling::block, .stride_row = 1, .stride_k = kM};
  if (!grouped) return p;
  p.batch = 4;
  p.b.stride_batch = 2 * kN * kK;
  p.bias_stride_batch = 2 * kN;
  if (scale_b.kind != Scaling::none) p.scale_b.stride_batch = 1 << 20;
  p.groups = {.dimension = Grouping::m, .zero_rest = true};
  return p;
}

const ScaleLayout kNoScales, kVector{.kind = Scaling::vector, .stride_row = 1},
    kLines{.kind = Scaling::block, .stride_row = 1, .stride_k = 1 << 12},
    kSquares{.kind = Scaling::block, .rows = kScaleBlock, .stride_row = 1, .stride_k = 1 << 8};

/// The sources of all kernels that are considered for a mode.
std::set<std::string> sources(GemmProblem p, SplitKMode split, const DeviceInfo& device) {
  p.split_k_mode = split;
  p.split_k_slices = split == SplitKMode::none ? 0 : 2;
  std::set<std::string> found;
  for (const Choice& choice : candidates(p, device))
    if (!choice.spec.apart) found.insert(gemm_source(choice.config));
  return found;
}

TEST(GatedScales, SumsInTurnOnHopper) {
  const DeviceInfo device = model_device("sm_90a");
  std::set<std::string> all;
  for (const bool grouped : {false, true}) {
    for (const GemmProblem& p :
         {layer(DType::bf16, kNoScales, kNoScales, grouped), layer(DType::e4m3, kVector, kVector, grouped),
          layer(DType::e4m3, kLines, kSquares, grouped), layer(DType::e4m3, kLines, kLines, grouped),
          layer(DType::i8, kVector, kVector, grouped)}) {
      const auto found = sources(p, SplitKMode::serial, device);
      EXPECT_FALSE(found.empty());
      for (const std::string& source : found) EXPECT_NE(source.find("gemm_sm90"), source.npos);
      all.insert(found.begin(), found.end());
    }
  }
  expect_no_spills(all, "sm_90a", 255);
}

TEST(GatedScales, BeforeHopper) {
  const DeviceInfo device = model_device("sm_80");
  std::set<std::string> all;
  for (const bool grouped : {false, true}) {
    for (const GemmProblem& p :
         {layer(DType::bf16, kNoScales, kNoScales, grouped), layer(DType::f16, kNoScales, kNoScales, grouped),
          layer(DType::i8, kVector, kVector, grouped)}) {
      for (const SplitKMode split : {SplitKMode::none, SplitKMode::serial}) {
        const auto found = sources(p, split, device);
        EXPECT_FALSE(found.empty());
        all.insert(found.begin(), found.end());
      }
    }
  }
  expect_no_spills(all, "sm_80", 255);
}

}  // namespace
}  // namespace cleave

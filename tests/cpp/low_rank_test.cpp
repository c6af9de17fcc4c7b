// Which kernels serve the product of a low-rank adapter that adds to what a layer gave.
#include <gtest/gtest.h>

#include "cleave/device.h"
#include "expect_no_spills.h"
#include "jit/source.h"
#include "plan/catalogue/candidates.h"

namespace cleave {
namespace {

/// Rows of `adapters` groups, hidden [rows, rank] @ B [adapters, features, rank] transposed, added to D in place.
GemmProblem expanding(int64_t adapters, int64_t rows, int64_t features, int64_t rank, DType type) {
  return {.m = rows,
          .n = features,
          .k = rank,
          .batch = adapters,
          .a = {.dtype = type, .stride_row = rank, .stride_col = 1},
          .b = {.dtype = type, .stride_row = 1, .stride_col = rank, .stride_batch = features * rank},
          .c = {.dtype = type, .stride_row = features, .stride_col = 1},
          .d = {.dtype = type, .stride_row = features, .stride_col = 1},
          .has_c = true,
          .groups = {.dimension = Grouping::m}};
}

TEST(LowRank, HopperKernelsAddToTheResidual) {
  const DeviceInfo device = device_info(kPlanOnlyH200);
  for (const DType type : {DType::bf16, DType::f16}) {
    for (const int64_t rank : {8, 16, 32, 64}) {
      for (const int64_t adapters : {1, 8, 64, 256}) {
        for (const int64_t rows : {64, 512, 4096}) {
          const Cheapest best = cheapest(expanding(adapters, rows, 4096, rank, type), device, Kernels::all);
          ASSERT_TRUE(best.choice.has_value());
          const Choice& choice = *best.choice;
          EXPECT_EQ(choice.config.family, KernelFamily::sm90) << rank << " " << adapters << " " << rows;
          EXPECT_EQ(choice.schedule.slices, 1u) << "nothing of so small a K is to be split";
        }
      }
    }
  }
}

/// Two waves of 128 accumulators did, beside C and a walk through groups of rows.
TEST(LowRank, TheWidestTilesDoNotSpill) {
  std::set<std::string> sources;
  for (const int64_t adapters : {1, 8}) {
    const auto best =
        cheapest(expanding(adapters, 4096, 4096, 16, DType::bf16), device_info(kPlanOnlyH200), Kernels::all);
    ASSERT_TRUE(best.choice.has_value());
    sources.insert(gemm_source(best.choice->config));
  }
  expect_no_spills(sources, "sm_90a", 255);
}

}  // namespace
}  // namespace cleave

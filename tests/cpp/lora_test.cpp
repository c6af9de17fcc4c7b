// The kernel of low-rank adapters: its configurations, what its launches cover, and that NVRTC makes it without spills.

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "cleave/device.h"
#include "expect_no_spills.h"
#include "lora/launches.h"
#include "lora/problem.h"

namespace cleave {
namespace {

constexpr int kHopper = 90, kAmpere = 80;

LoraProblem problem_of(int64_t rows, int64_t rank, int64_t adapters = 4, int64_t features = 4096,
                       DType type = DType::bf16) {
  const auto layout = [&](int64_t lines, int64_t columns) {
    return MatrixLayout{.dtype = type, .stride_row = columns, .stride_batch = lines * columns, .alignment = 16};
  };
  return {.rows = rows,
          .features = features,
          .outputs = 1536,
          .rank = rank,
          .adapters = adapters,
          .x = layout(rows, features),
          .a = layout(rank, features),
          .b = layout(1536, rank),
          .out = layout(rows, 1536),
          .device = kPlanOnlyH100};
}

TEST(Lora, ClustersHaveAllRowsFeaturesAndOutputs) {
  EXPECT_TRUE(lora_launches(problem_of(0, 8), kHopper).empty());
  for (const int compute_capability : {kAmpere, kHopper}) {
    for (const int64_t rows : {1, 63, 4096}) {
      for (const int64_t features : {0, 8, 1000, 8192}) {
        const LoraLaunch launch = lora_launches(problem_of(rows, 16, 8, features), compute_capability).at(0);
        const uint32_t ctas = launch.config.cluster, clusters = launch.shape.grid.x / ctas;
        EXPECT_EQ(launch.shape.cluster, ctas);
        EXPECT_EQ(clusters * ctas, launch.shape.grid.x);
        // Seven of 8 adapters may begin in a tile of their own.
        EXPECT_GE(clusters, (rows - min_of<int64_t>(rows, 8)) / launch.config.rows + min_of<int64_t>(rows, 8));
        for (const auto& [part, all] : {std::pair{launch.params.cta_features, launch.params.features},
                                        std::pair{launch.params.cta_outputs, launch.params.outputs}}) {
          EXPECT_EQ(part % kLoraStrip, 0u);
          EXPECT_GE(part * ctas, all);
        }
      }
    }
  }
}

TEST(Lora, TilesGrowWithTheRowsOfAnAdapter) {
  EXPECT_EQ(config_of(problem_of(64, 16), kHopper).rows, 16u);
  EXPECT_EQ(config_of(problem_of(512, 16, 64), kHopper).rows, 16u);
  EXPECT_EQ(config_of(problem_of(512, 16, 1), kHopper).rows, 16u);
  EXPECT_EQ(config_of(problem_of(4096, 16), kHopper).rows, 32u);
  EXPECT_EQ(config_of(problem_of(512, 64), kHopper).rows, 16u);
  EXPECT_EQ(config_of(problem_of(4096, 64, 64), kHopper).rows, 32u);
  EXPECT_EQ(config_of(problem_of(4096, 64, 64), kHopper).cluster, 4u);
  EXPECT_EQ(config_of(problem_of(4096, 64, 256), kHopper).cluster, 8u);
  EXPECT_EQ(config_of(problem_of(4096, 64), kAmpere).cluster, 1u);
}

/// Some 500 CTAs of 4 warps are on a GPU at once.
TEST(Lora, ManyTilesHaveSmallClusters) {
  EXPECT_EQ(config_of(problem_of(64, 16, 256), kHopper).cluster, 8u);
  EXPECT_EQ(config_of(problem_of(512, 16, 8), kHopper).cluster, 8u);
  EXPECT_EQ(config_of(problem_of(512, 16, 64), kHopper).cluster, 4u);
  EXPECT_EQ(config_of(problem_of(4096, 16, 256), kHopper).cluster, 4u);
}

TEST(Lora, VectorsNeedRowsOfWholePieces) {
  EXPECT_TRUE(config_of(problem_of(64, 24), kHopper).vectors);
  EXPECT_FALSE(config_of(problem_of(64, 12), kHopper).vectors);
  EXPECT_FALSE(config_of(problem_of(64, 16, 4, 1001), kHopper).vectors);
  LoraProblem odd = problem_of(64, 16);
  odd.out.stride_row += 4;
  EXPECT_FALSE(config_of(odd, kHopper).vectors);
  odd = problem_of(64, 16);
  odd.b.alignment = 8;
  EXPECT_FALSE(config_of(odd, kHopper).vectors);
}

TEST(Lora, WhatIsServed) {
  EXPECT_TRUE(validate(problem_of(64, 64)).empty());
  EXPECT_EQ(validate(problem_of(64, 65)).at(0),
            "rank is 65; it must be from 1 to 64; other ranks take two grouped products");
  EXPECT_EQ(validate(problem_of(64, 8, 4, 64, DType::f32)).at(0),
            "x is float32; it must be float16 or bfloat16, convert it");
  LoraProblem mixed = problem_of(64, 8);
  mixed.out.dtype = DType::f16;
  EXPECT_EQ(validate(mixed).at(0), "out is float16 and x is bfloat16; convert one of them");
}

/// Every tile; by single elements those of the least and the highest rank. Types differ in names alone.
std::set<std::string> all_sources(int compute_capability, bool vectors) {
  std::set<std::string> sources;
  for (const int64_t rank : {8, 16, 32, 64}) {
    if (!vectors && rank % 56 != 8) continue;
    for (const auto& [rows, adapters] : {std::pair{4, 4}, {64, 4}, {64, 64}, {512, 256}, {4096, 4}}) {
      const DType type = rank == 8 ? DType::f16 : DType::bf16;
      const LoraProblem p = problem_of(rows, rank, adapters, vectors ? 4096 : 4095, type);
      for (const LoraLaunch& launch : lora_launches(p, compute_capability))
        sources.insert(translation_unit(launch.kernel, launch.config));
    }
  }
  return sources;
}

TEST(Lora, KernelsOfHopperDoNotSpill) {
  expect_no_spills(all_sources(kHopper, true), "sm_90a", 128);
  expect_no_spills(all_sources(kHopper, false), "sm_90a", 255);
}

TEST(Lora, KernelsOfAmpereDoNotSpill) {
  expect_no_spills(all_sources(kAmpere, true), "sm_80", 255);
  expect_no_spills(all_sources(kAmpere, false), "sm_80", 255);
}

}  // namespace
}  // namespace cleave

// Strided data gradients whose classes of pixels lie side by side in a tile, those of patches among them.
#include <gtest/gtest.h>

#include "conv_choice.h"
#include "plan/catalogue/candidates.h"

namespace cleave {
namespace {

TEST(SideBySide, FewChannels) {
  const GemmProblem p = problem(layer(Conv::dgrad, 8, 64));
  for (const char* spec : {"sm90 128x64 side_by_side gather", "portable 64x64 side_by_side"}) {
    const auto choice = choose(p, spec);
    ASSERT_TRUE(choice.has_value()) << spec;
    EXPECT_EQ(choice->problem.m, 8 * 14 * 14);
    EXPECT_EQ(choice->problem.n, 4 * 8);
    EXPECT_EQ(choice->problem.k, 4 * 64);
    EXPECT_EQ(choice->schedule.k_blocks, 4u);
    EXPECT_EQ(choice->config.conv.class_capacity, 1u);
    EXPECT_EQ(choice->config.schedule.grouping, Grouping::none);
    EXPECT_FALSE(choice->config.store.by_tma);
  }
  EXPECT_FALSE(serves(p, "sm90 128x64 side_by_side")) << "TMA cannot fetch such filters";
  EXPECT_FALSE(serves(p, "portable 64x64 side_by_side gather"));
}

/// A patch embedding's layer.
ConvLayout embedding(int32_t patch, int32_t size = 224, int64_t channels = 3, int64_t filters = 768) {
  const ConvAxis axis{.size = size, .filter = patch, .stride = patch};
  return {.kind = Conv::dgrad, .images = 64, .channels = channels, .filters = filters, .axes = {kNone, axis, axis}};
}

TEST(SideBySide, PatchesAreOneProduct) {
  for (const char* spec : {"sm90 128x256 side_by_side", "sm90 128x128 side_by_side pingpong",
                           "sm90 128x128 multicast 2x1 side_by_side", "portable 128x128 side_by_side"}) {
    const auto choice = choose(problem(embedding(16)), spec);
    ASSERT_TRUE(choice.has_value()) << spec;
    EXPECT_EQ(choice->problem.m, 64 * 14 * 14);
    EXPECT_EQ(choice->problem.n, 768);
    EXPECT_EQ(choice->problem.k, 768);
    EXPECT_TRUE(choice->config.conv.patches);
    EXPECT_EQ(choice->config.operands.load_bytes_b, 16u);
    EXPECT_EQ(choice->config.store.run_bytes, has_tma(choice->config.family) ? 16u : 0u);
    EXPECT_EQ(choice->config.schedule.grouping, Grouping::none);
  }
  EXPECT_FALSE(serves(problem(embedding(16)), "sm90 128x128 side_by_side gather"));
  EXPECT_FALSE(serves(problem(embedding(1)), "sm90 128x128 side_by_side")) << "one class";
  for (const int32_t patch : {4, 16, 32}) {
    const Cheapest best = cheapest(problem(embedding(patch)), h100(), Kernels::all);
    ASSERT_TRUE(best.choice.has_value());
    EXPECT_TRUE(best.choice->config.conv.patches) << patch;
    EXPECT_EQ(best.choice->config.family, KernelFamily::sm90) << patch;
  }
}

TEST(SideBySide, RunsOfPatches) {
  const auto run_bytes = [](const GemmProblem& p) {
    return choose(p, "sm90 128x128 side_by_side").value().config.store.run_bytes;
  };
  EXPECT_EQ(run_bytes(problem(embedding(4))), 8u) << "12 channels of 4 pixels";
  EXPECT_EQ(run_bytes(problem(embedding(2, 224, 4))), 16u);
  EXPECT_EQ(run_bytes(problem(embedding(2, 225, 4))), 8u) << "the last pixel is alone";
  EXPECT_EQ(run_bytes(problem(embedding(2, 57, 384))), 16u);
  GemmProblem p = problem(embedding(4));
  p.d.alignment = 4;
  EXPECT_EQ(run_bytes(p), 4u);
  p.d.alignment = 2;
  EXPECT_EQ(run_bytes(p), 0u);
  p = problem(embedding(4));
  p.d.stride_row = 8;
  EXPECT_EQ(run_bytes(p), 0u) << "pixels apart";
  p = problem(embedding(4));
  p.has_c = true;
  EXPECT_EQ(run_bytes(p), 0u);
  EXPECT_EQ(run_bytes(implicit_gemm(embedding(4), 1, DType::f16, DType::f32)), 0u);
}

TEST(SideBySide, FiltersOfPatchesNeedAlignmentAsWholes) {
  EXPECT_FALSE(serves(problem(embedding(14)), "sm90 128x128 side_by_side"));
  const auto choice = choose(problem(embedding(14)), "portable 128x128 side_by_side");
  ASSERT_TRUE(choice.has_value());
  EXPECT_EQ(choice->config.operands.load_bytes_b, 8u);
}

TEST(SideBySide, WhatCannotBe) {
  const std::string sm90 = "sm90 128x64 side_by_side gather";
  const std::string portable = "portable 64x64 side_by_side";
  const auto expect_refused = [&](const GemmProblem& p) {
    EXPECT_FALSE(serves(p, sm90));
    EXPECT_FALSE(serves(p, portable));
  };
  expect_refused(problem(layer(Conv::fprop, 8, 64)));
  expect_refused(problem(layer(Conv::wgrad, 8, 64)));
  expect_refused(problem(layer(Conv::dgrad, 8, 64), 2));
  ConvLayout conv = layer(Conv::dgrad, 8, 64);
  conv.axes[1].stride = conv.axes[2].stride = 1;
  expect_refused(problem(conv));
  conv.axes[2].stride = 9;
  expect_refused(problem(conv));
  conv.axes[2].stride = 2;
  conv.axes[2].dilation = 3;
  expect_refused(problem(conv));
  conv.axes[2].dilation = 2;
  EXPECT_TRUE(serves(problem(conv), sm90));
  // Out of reach of im2col, but not of threads.
  conv.axes[2] = {.size = 800, .filter = 2, .stride = 2, .pad_begin = 300, .pad_end = 300};
  EXPECT_FALSE(serves(problem(conv), sm90));
  EXPECT_TRUE(serves(problem(conv), portable));
}

TEST(SideBySide, LoadsAreNotShared) {
  const GemmProblem p = implicit_gemm(layer(Conv::dgrad, 8, 64), 1, DType::f16, DType::f16);
  EXPECT_FALSE(serves(p, "sm90 128x64 side_by_side gather multicast 1x2"));
  EXPECT_FALSE(serves(p, "sm90 128x128 side_by_side gather multicast 2x1"));
}

}  // namespace
}  // namespace cleave

// Into how many slices weight gradients that convolve directly are cut, and how their CTAs share a GPU.

#include "plan/direct/slices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "depthwise.h"
#include "expect_no_spills.h"
#include "jit/source.h"
#include "plan/choice/spec.h"
#include "plan/model_device.h"

namespace cleave {
namespace {

GemmProblem gradient(int64_t slices = 0, SplitKMode mode = SplitKMode::automatic) {
  const ConvAxis axis = centred_axis(28, 3, 1);
  GemmProblem p = depthwise(Conv::wgrad, axis, axis, 64, 1, 4);
  p.split_k_slices = int32_t(slices);
  p.split_k_mode = mode;
  return p;
}

const Spec kSpec{.family = KernelFamily::direct, .tile_m = 7, .tile_n = 16};
constexpr uint32_t kBlocks = 4, kRoom = 2;
constexpr int64_t kTiles = 112;

std::vector<Spec> specs(const GemmProblem& p, const DeviceInfo& device = h100(), int64_t tiles = kTiles) {
  return sliced_specs(p, device, kSpec, kBlocks, tiles, kRoom, Deal::runs);
}

TEST(DirectSlices, AreFewOrFillTheGpu) {
  const std::vector<Spec> found = specs(gradient());
  for (const Spec& spec : found) {
    EXPECT_EQ(std::count(found.begin(), found.end(), spec), 1) << to_string(spec);
    EXPECT_TRUE(has_slices(spec, h100())) << to_string(spec);
    EXPECT_LE(spec.slices, kTiles);
    EXPECT_LE(spec.slices / spec.cluster_k * kBlocks, clusters_at_once(spec.cluster_k, kRoom, h100()) + kBlocks);
    if (spec.cluster_k == 1) {
      EXPECT_FALSE(has_empty_slices(spec, kTiles)) << to_string(spec);
    }
  }
  const auto has = [&](uint32_t slices, uint32_t together) {
    return std::any_of(found.begin(), found.end(),
                       [&](const Spec& s) { return s.slices == slices && s.cluster_k == together; });
  };
  EXPECT_TRUE(has(1, 1));
  EXPECT_TRUE(has(56, 1)) << "66 would leave some empty";
  for (const uint32_t together : {2u, 4u, 8u}) EXPECT_TRUE(has(together, together));
  EXPECT_TRUE(has(66, 2));
}

TEST(DirectSlices, AreAsManyAsWereAskedFor) {
  for (const int64_t asked : {1, 3, 8, 16}) {
    const std::vector<Spec> found = specs(gradient(asked));
    ASSERT_FALSE(found.empty());
    for (const Spec& spec : found) EXPECT_EQ(spec.slices, asked);
  }
  EXPECT_EQ(specs(gradient(100)).front().slices, 56u) << "100 slices of 112 tiles would be empty from the 57th on";
  const std::vector<Spec> none = specs(gradient(0, SplitKMode::none));
  ASSERT_EQ(none.size(), 1u);
  EXPECT_EQ(none.front(), kSpec);
}

TEST(DirectSlices, MeetInClustersOnHopperOnly) {
  const DeviceInfo ampere = model_device("sm_80");
  for (const Spec& spec : specs(gradient(), ampere)) EXPECT_EQ(spec.cluster_k, 1u);
  Spec spec = kSpec;
  spec.split = SplitKMode::parallel;
  spec.slices = 8, spec.cluster_k = 4;
  EXPECT_TRUE(has_slices(spec, h100()));
  EXPECT_FALSE(has_slices(spec, ampere));
  spec.cluster_k = 3;
  EXPECT_FALSE(has_slices(spec, h100())) << "no whole clusters";
  spec.slices = spec.cluster_k = 16;
  EXPECT_FALSE(has_slices(spec, h100()));
}

TEST(DirectSlices, OnlyAClustersLastOnesMayBeEmpty) {
  Spec spec = kSpec;
  spec.slices = 8;
  EXPECT_FALSE(has_empty_slices(spec, 16));
  EXPECT_TRUE(has_empty_slices(spec, 9)) << "two each: three are left over";
  spec.cluster_k = 4;
  EXPECT_FALSE(has_empty_slices(spec, 9));
  EXPECT_TRUE(has_empty_slices(spec, 4));
}

TEST(DirectSlices, ShareTheSmsInTurns) {
  const auto turns = [](uint32_t blocks, uint32_t together) {
    Choice choice;
    choice.blocks = blocks;
    choice.config.cluster.k = together;
    return turns_of(choice, kRoom, h100());
  };
  EXPECT_EQ(turns(132, 1).beside, 1);
  EXPECT_EQ(turns(133, 1).beside, 2);
  EXPECT_EQ(turns(264, 1).turns, 1);
  EXPECT_EQ(turns(265, 1).turns, 2);
  EXPECT_EQ(turns(15 * 8, 8).beside, 1);
  EXPECT_EQ(turns(16 * 8, 8).beside, 2);
  EXPECT_EQ(turns(31 * 8, 8).turns, 2);
  EXPECT_EQ(turns(31 * 8, 8).beside, 2);
}

TEST(DirectSlices, KernelsOfClustersSpillNothing) {
  std::set<std::string> sources;
  const auto add = [&](int32_t taps, int32_t stride, const char* cut) {
    const ConvAxis axis = centred_axis(28, taps, stride);
    const auto choice = choose(depthwise(Conv::wgrad, axis, axis, 64), cut);
    ASSERT_TRUE(choice) << cut;
    sources.insert(gemm_source(choice->config));
  };
  for (const int32_t stride : {1, 2}) {
    for (const int32_t taps : {3, 5, 7}) {
      for (const char* cut : {"direct 4x8 parallel 8 clusters 8", "direct 7x16 parallel 4 clusters 4"})
        add(taps, stride, cut);
    }
    add(3, stride, "direct 5x32 columns 2 parallel 8 clusters 8");
    add(5, stride, "direct 5x16 columns 1 parallel 4 clusters 2");
    for (const char* cut : {"direct 7x8 ahead 2 parallel 8 clusters 8", "direct 7x32 ahead 2 parallel 4 clusters 2"})
      add(7, stride, cut);
  }
  add(7, 1, "direct 14x16 ahead 2 parallel 8 clusters 8");
  EXPECT_EQ(sources.size(), 21u);
  expect_no_spills(sources, "sm_90a", 168);
}

}  // namespace
}  // namespace cleave

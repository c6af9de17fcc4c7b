// How many tiles the host expects of groups whose sizes it does not know.
#include "plan/choice/likely_steps.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

namespace cleave {
namespace {

std::vector<double> likely(int64_t total, int64_t groups, uint32_t step) {
  const Likely steps = likely_steps(total, groups, step);
  return {steps.values().begin(), steps.values().end()};
}

TEST(LikelySteps, OfOneGroupAreKnown) {
  EXPECT_EQ(likely(257, 1, 128), std::vector{3.0});
  EXPECT_EQ(likely(0, 1, 128), std::vector{0.0});
}

/// Four of 144 to 178 have two steps each; one of 125 to 197 has one, and so have two of 309, 154, 103 and 77.
TEST(LikelySteps, OfFewGroupsAreCountedGroupByGroup) {
  EXPECT_EQ(likely(643, 4, 128), (std::vector{8.0, 7.0, 7.0}));
  EXPECT_DOUBLE_EQ(likely_steps(643, 4, 128).mean(), 22.0 / 3);
}

/// 640 elements of four groups that begin at multiples of 128, with what lies between them, are five times 128.
TEST(LikelySteps, OfSpacedGroupsFillTheirTotal) {
  const auto spaced = [](uint32_t step) { return likely_steps(640, 4, step, 128); };
  EXPECT_EQ(spaced(128).values().size(), 1u);
  EXPECT_EQ(spaced(128).mean(), 5);
  EXPECT_EQ(spaced(64).mean(), 10);
  EXPECT_GT(spaced(192).values().size(), 1u);
  EXPECT_LT(spaced(192).mean(), likely_steps(640, 4, 192).mean());
}

/// Where every group has less than a step, there are as many steps as groups.
TEST(LikelySteps, OfSmallGroupsAreGroups) {
  for (const double steps : likely(64 * 20, 64, 256)) EXPECT_NEAR(steps, 64, 0.5);
}

TEST(LikelySteps, OfFewerElementsThanGroupsAreElements) {
  const std::vector<double> steps = likely(8, 64, 128);
  EXPECT_GT(steps[0], 4);
  for (const double each : steps) EXPECT_LE(each, 8.001);
}

/// Rounding up adds half a step a group on average, and never more than one.
TEST(LikelySteps, OfManyLargeGroupsAreTheirLengthAndHalfAStepEach) {
  for (const int64_t groups : {12, 16, 17, 100, 256}) {
    const int64_t total = 1000 * groups;
    for (const double steps : likely(total, groups, 64)) {
      EXPECT_GT(steps, double(total) / 64 + 0.2 * double(groups));
      EXPECT_LT(steps, double(total) / 64 + 0.8 * double(groups));
    }
  }
}

/// Beyond 16 groups, ranks are taken together: about the same comes of it.
TEST(LikelySteps, ByRankAreThoseOfTheRanks) {
  for (const int64_t groups : {17, 32, 128}) {
    const double total = 300.0 * double(groups);
    std::vector<double> shares;
    for (int64_t rank = 1; rank <= groups; ++rank) shares.push_back(1 / double(rank));
    const double sum = std::reduce(shares.begin(), shares.end());
    double steps = 0;
    for (const double share : shares) steps += std::ceil(total * share / sum / 128);
    EXPECT_NEAR(likely(int64_t(total), groups, 128)[2] / steps, 1, 0.06) << groups;
  }
}

}  // namespace
}  // namespace cleave

#include "launch/launch_attributes.h"

#include <gtest/gtest.h>

namespace cleave {
namespace {

TEST(LaunchAttributes, OverlapWhereTheGpuAndTheDriverCan) {
  EXPECT_TRUE(launches_overlap(90, 12030));
  EXPECT_TRUE(launches_overlap(100, 13000));
  EXPECT_FALSE(launches_overlap(80, 13000));
  EXPECT_FALSE(launches_overlap(89, 13000));
  EXPECT_FALSE(launches_overlap(90, 12020)) << "a graph of such a driver cannot hold the edge";
}

TEST(LaunchAttributes, AreThoseAskedFor) {
  EXPECT_EQ(launch_attributes(1, false, false).count, 0u);
  const LaunchAttributes all = launch_attributes(4, true, true);
  ASSERT_EQ(all.count, 3u);
  EXPECT_EQ(all.list[0].id, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  EXPECT_EQ(all.list[0].value.clusterDim.x, 4u);
  EXPECT_EQ(all.list[1].id, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
  EXPECT_EQ(all.list[2].id, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
  EXPECT_EQ(all.list[2].value.cooperative, 1);
}

}  // namespace
}  // namespace cleave

// What breaks a rule of the driver's is refused by the fake one, so that launches which pass it would pass on a GPU.
#include "rules.h"

#include <gtest/gtest.h>

namespace fake_driver {
namespace {

CUlaunchConfig good_launch() {
  CUlaunchConfig launch = {};
  launch.gridDimX = 6, launch.gridDimY = launch.gridDimZ = 1;
  launch.blockDimX = 384, launch.blockDimY = launch.blockDimZ = 1;
  launch.sharedMemBytes = 227 << 10;
  return launch;
}

TEST(FakeDriverRules, OfLaunches) {
  CUlaunchConfig launch = good_launch();
  EXPECT_TRUE(is_launchable(launch));
  launch.gridDimX = 0;
  EXPECT_FALSE(is_launchable(launch));
  launch = good_launch(), launch.gridDimY = 65536;
  EXPECT_FALSE(is_launchable(launch));
  launch = good_launch(), launch.blockDimX = 1056;
  EXPECT_FALSE(is_launchable(launch));
  launch = good_launch(), ++launch.sharedMemBytes;
  EXPECT_FALSE(is_launchable(launch));
  CUlaunchAttribute clusters = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION};
  launch = good_launch(), launch.attrs = &clusters, launch.numAttrs = 1;
  clusters.value.clusterDim = {2, 1, 1};
  EXPECT_TRUE(is_launchable(launch));
  clusters.value.clusterDim = {4, 1, 1};
  EXPECT_FALSE(is_launchable(launch));
}

TEST(FakeDriverRules, OfTensorMaps) {
  const auto at = [](uintptr_t address) { return reinterpret_cast<const void*>(address); };
  cuuint64_t size[] = {64, 100}, stride[] = {208};
  cuuint32_t step[] = {1, 1};
  EXPECT_TRUE(is_tensor(2, at(1 << 20), size, stride, step));
  EXPECT_FALSE(is_tensor(2, at((1 << 20) + 8), size, stride, step));
  EXPECT_FALSE(is_tensor(6, at(1 << 20), size, stride, step));
  stride[0] = 200;
  EXPECT_FALSE(is_tensor(2, at(1 << 20), size, stride, step));
  stride[0] = 208, size[1] = 0;
  EXPECT_FALSE(is_tensor(2, at(1 << 20), size, stride, step));

  constexpr auto kHalf = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  EXPECT_TRUE(is_line(kHalf, 64, CU_TENSOR_MAP_SWIZZLE_128B));
  EXPECT_FALSE(is_line(kHalf, 72, CU_TENSOR_MAP_SWIZZLE_128B));
  EXPECT_FALSE(is_line(kHalf, 4, CU_TENSOR_MAP_SWIZZLE_NONE));

  const int lower[] = {-128, 0}, upper[] = {127, 128};
  EXPECT_TRUE(are_corners(4, lower, lower));
  EXPECT_FALSE(are_corners(4, lower, upper));
}

}  // namespace
}  // namespace fake_driver

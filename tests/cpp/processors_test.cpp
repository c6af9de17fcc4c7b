// The limits of control groups, in folders that look like a machine's.
#include "cpu/processors.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace cleave::cpu {
namespace {

class ControlGroupLimit : public testing::Test {
 protected:
  ControlGroupLimit() {
    std::string pattern = testing::TempDir() + "control_group_XXXXXX";
    root_ = mkdtemp(pattern.data());
  }
  ~ControlGroupLimit() override { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::optional<uint32_t> limit() const { return control_group_limit(root_); }

 private:
  std::filesystem::path root_;
};

TEST_F(ControlGroupLimit, NothingSaysSo) {
  EXPECT_EQ(limit(), std::nullopt);
  write("proc/self/cgroup", "0::/\n");
  EXPECT_EQ(limit(), std::nullopt);
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(limit(), std::nullopt);
}

TEST_F(ControlGroupLimit, VersionTwoTakesTheTightestGroup) {
  write("proc/self/cgroup", "0::/outer/inner\n");
  write("sys/fs/cgroup/outer/cpu.max", "250000 100000\n");
  write("sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
  EXPECT_EQ(limit(), 3u) << "two and a half processors, rounded up";
  write("sys/fs/cgroup/outer/inner/cpu.max", "20000 100000\n");
  EXPECT_EQ(limit(), 1u);
}

TEST_F(ControlGroupLimit, VersionOneHasAFolderForEachController) {
  write("proc/self/cgroup", "5:memory:/\n4:cpu,cpuacct:/docker/0123\n3:cpuset:/\n");
  write("sys/fs/cgroup/cpu,cpuacct/docker/0123/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/docker/0123/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limit(), std::nullopt);
  write("sys/fs/cgroup/cpu,cpuacct/docker/0123/cpu.cfs_quota_us", "400000\n");
  EXPECT_EQ(limit(), 4u);
}

TEST_F(ControlGroupLimit, AContainerSeesItsOwnGroupAtTheMount) {
  write("proc/self/cgroup", "0::/system.slice/host-name-of-the-container\n");
  write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(limit(), 2u);
}

TEST(UsableProcessors, AreSome) {
  EXPECT_GE(usable_processors(), 1u);
}

}  // namespace
}  // namespace cleave::cpu

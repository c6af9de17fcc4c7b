#include "cpu/processors.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

namespace cleave::cpu {
namespace {

namespace fs = std::filesystem;

/// Processors by the affinity of this process, however many the machine has; 0 if it is not known.
uint32_t processors_of_affinity() {
  // The kernel refuses a set that is too small for the machine.
  for (size_t most = 1024; most <= 65536; most *= 2) {
    cpu_set_t* const set = CPU_ALLOC(most);
    if (set == nullptr) return 0;
    const size_t size = CPU_ALLOC_SIZE(most);
    const bool known = sched_getaffinity(0, size, set) == 0;
    const int count = known ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (known) return uint32_t(count);
  }
  return 0;
}

/// One group's limit: version 2 has quota and period in one file, where the quota may be "max",
/// version 1 in two, where it may be -1.
std::optional<double> limit_of(const fs::path& group) {
  double quota = 0, period = 0;
  const bool limited =
      (std::ifstream(group / "cpu.max") >> quota >> period) ||
      ((std::ifstream(group / "cpu.cfs_quota_us") >> quota) && (std::ifstream(group / "cpu.cfs_period_us") >> period));
  if (!limited || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

/// The limit of the group at `path` and those around it, down from `mount`, which is the outermost
/// that can be seen. In a container `path` may be the host's, and not there: then `mount` is the group.
void tighten(std::optional<double>& least, const fs::path& mount, const std::string& path) {
  fs::path group = mount;
  const auto look = [&] {
    if (const auto limit = limit_of(group)) least = std::min(least.value_or(*limit), *limit);
  };
  look();
  for (const fs::path& part : fs::path(path).relative_path()) {
    group /= part;
    look();
  }
}

bool has_cpu(const std::string& controllers) {
  std::istringstream list(controllers);
  for (std::string name; std::getline(list, name, ',');)
    if (name == "cpu") return true;
  return false;
}

}  // namespace

std::optional<uint32_t> control_group_limit(const fs::path& root) {
  std::optional<double> least;
  const fs::path mounts = root / "sys/fs/cgroup";
  // Each line is hierarchy:controllers:path; version 2 names no controllers.
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string hierarchy, controllers, path;
       std::getline(groups, hierarchy, ':') && std::getline(groups, controllers, ':') && std::getline(groups, path);) {
    if (controllers.empty()) tighten(least, mounts, path);
    if (has_cpu(controllers)) tighten(least, mounts / controllers, path);
  }
  if (!least) return std::nullopt;
  return uint32_t(std::clamp(std::ceil(*least), 1.0, 65536.0));
}

uint32_t usable_processors() {
  uint32_t processors = processors_of_affinity();
  if (processors == 0) processors = std::max(std::thread::hardware_concurrency(), 1u);
  return std::min(processors, control_group_limit().value_or(processors));
}

}  // namespace cleave::cpu

#include "plan/model_device.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/refuse.h"

namespace cleave {

std::vector<std::string> model_architectures() {
  return {"sm_80", "sm_90a"};
}

DeviceInfo model_device(const std::string& arch) {
  const std::vector<std::string> known = model_architectures();
  if (std::ranges::find(known, arch) == known.end())
    refuse_value("arch is \"{}\"; it must be \"{}\"", arch, fmt::join(known, "\" or \""));
  DeviceInfo device = device_info(kPlanOnlyH100);
  if (arch == "sm_90a") return device;
  device.name = "NVIDIA A100";
  device.compute_capability = 80;
  device.num_sms = 108;
  device.shared_memory_per_block = 163 * 1024;
  return device;
}

}  // namespace cleave

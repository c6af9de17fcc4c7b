#include "plan/model_device.h"

#include "base/refuse.h"

namespace cleave {

DeviceInfo model_device(const std::string& arch) {
  DeviceInfo device = device_info(kPlanOnlyH100);
  if (arch == "sm_90a") return device;
  if (arch != "sm_80") {
    refuse_value("arch is \"{}\"; it must be \"sm_80\" or \"sm_90a\"", arch);
  }
  device.name = "NVIDIA A100";
  device.compute_capability = 80;
  device.num_sms = 108;
  device.shared_memory_per_block = 163 * 1024;
  return device;
}

}  // namespace cleave

#include "cleave/device.h"

#include <vector>

#include "base/refuse.h"
#include "process/fork.h"
#include "runtime/driver.h"

namespace cleave {
namespace {

int attribute(CUdevice device, CUdevice_attribute which) {
  int value = 0;
  check(driver().device_get_attribute(&value, which, device), "cuDeviceGetAttribute");
  return value;
}

DeviceInfo query(int ordinal) {
  const Driver& cuda = driver();
  CUdevice device = 0;
  check(cuda.device_get(&device, ordinal), "cuDeviceGet");
  DeviceInfo info;
  char name[256] = {};
  check(cuda.device_get_name(name, sizeof(name), device), "cuDeviceGetName");
  info.name = name;
  check(cuda.device_total_mem(&info.memory_bytes, device), "cuDeviceTotalMem");
  info.compute_capability = 10 * attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                            attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  info.num_sms = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  info.shared_memory_per_block = attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  info.l2_bytes = attribute(device, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  info.clock_ghz = attribute(device, CU_DEVICE_ATTRIBUTE_CLOCK_RATE) * 1e-6;
  const double memory_hz = attribute(device, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) * 1e3;
  const double bus_bytes = attribute(device, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH) / 8.0;
  info.memory_gb_per_s = 2 * memory_hz * bus_bytes * 1e-9;  // two transfers per clock
  return info;
}

std::vector<DeviceInfo> query_all() {
  std::vector<DeviceInfo> devices;
  if (!driver_available()) return devices;
  int count = 0;
  check(driver().device_get_count(&count), "cuDeviceGetCount");
  for (int i = 0; i < count; ++i) devices.push_back(query(i));
  return devices;
}

const std::vector<DeviceInfo>& devices() {
  static constinit Lazy<const std::vector<DeviceInfo>> all;
  return all.get(query_all);
}

DeviceInfo h100_sxm() {
  return {.name = "NVIDIA H100 80GB HBM3",  // as the driver says it: measured winners apply
          .compute_capability = 90,
          .num_sms = 132,
          .shared_memory_per_block = 232448,
          .l2_bytes = 50 << 20,
          .memory_gb_per_s = 3350,
          .clock_ghz = 1.98,
          .memory_bytes = size_t(80) << 30};
}

DeviceInfo h200_sxm() {
  DeviceInfo device = h100_sxm();
  device.name = "NVIDIA H200";
  device.l2_bytes = 60 << 20;
  device.memory_gb_per_s = 4917;  // from the driver's clock and width, as those of GPUs that are there
  device.memory_bytes = size_t(141) << 30;
  return device;
}

}  // namespace

int device_count() noexcept {
  try {
    return int(devices().size());
  } catch (...) {
    return 0;
  }
}

const DeviceInfo& device_info(int device) {
  static constinit Lazy<const DeviceInfo> h100, h200;
  if (device == kPlanOnlyH100) return h100.get(h100_sxm);
  if (device == kPlanOnlyH200) return h200.get(h200_sxm);
  driver();
  if (device < 0 || device >= device_count()) {
    refuse_value("device is {}; there are {} CUDA devices", device, device_count());
  }
  return devices()[size_t(device)];
}

}  // namespace cleave

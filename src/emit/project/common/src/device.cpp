#include "device.h"

#include <stdexcept>
#include <string>

#include "cleave/config/clusters.h"
#include "cleave/config/dependent_launch.h"
#include "cleave/config/smem_plan.h"
#include "cleave/config/threads.h"
#include "config.h"
#include "driver.h"

namespace emitted::operation {
namespace {

int attribute(CUdevice device, CUdevice_attribute which) {
  int value = 0;
  DRIVER_CALL(cuDeviceGetAttribute, &value, which, device);
  return value;
}

}  // namespace

Device::Device(int ordinal, bool of_rest) {
  DRIVER_CALL(cuInit, 0);
  DRIVER_CALL(cuDeviceGet, &device_, ordinal);
  const int major = attribute(device_, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  const int minor = attribute(device_, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  kernel_ = find_kernel(major, minor, of_rest);
  has_rest_ = !of_rest && find_kernel(major, minor, true) != nullptr;
  num_sms_ = uint32_t(attribute(device_, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  DRIVER_CALL(cuDevicePrimaryCtxRetain, &context_, device_);
  try {
    prepare_launch();
    load_kernel();
  } catch (...) {
    DRIVER(cuDevicePrimaryCtxRelease)(device_);
    throw;
  }
}

Device::~Device() {
  if (loaded_.module != nullptr && DRIVER(cuCtxPushCurrent)(context_) == CUDA_SUCCESS) {
    DRIVER(cuModuleUnload)(loaded_.module);
    if (loaded_reduce_.module != nullptr) DRIVER(cuModuleUnload)(loaded_reduce_.module);
    DRIVER(cuCtxPopCurrent)(&context_);
  }
  DRIVER(cuDevicePrimaryCtxRelease)(device_);
}

void Device::prepare_launch() {
  const cleave::GemmConfig& kernel = kernel_->config;
  const uint32_t cluster = cleave::cluster_size(kernel);
  launch_.gridDimX = cluster;
  launch_.blockDimX = cleave::cta_threads(kernel);
  launch_.gridDimY = launch_.gridDimZ = launch_.blockDimY = launch_.blockDimZ = 1;
  launch_.sharedMemBytes = cleave::smem_plan(kernel).bytes;
  int version = 0;
  DRIVER_CALL(cuDriverGetVersion, &version);
  const int capability = 10 * attribute(device_, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                         attribute(device_, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  can_overlap_ = cleave::launches_overlap(capability, version);
  for (const bool overlaps : {false, true})
    attributes_[overlaps] = cleave::launch_attributes(cluster, overlaps, cleave::ctas_wait(kernel));
  launch_.attrs = attributes_[can_overlap_].list;
  launch_.numAttrs = attributes_[can_overlap_].count;
}

void Device::load_kernel() {
  const cleave::GemmConfig& config = kernel_->config;
  const ContextGuard guard(context_);
  const RelaxedCapture relaxed;
  loaded_ = load(*kernel_);
  if constexpr (kReduces) loaded_reduce_ = load_reduce(*kernel_);
  int fixed = 0;
  DRIVER_CALL(cuFuncGetAttribute, &fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, loaded_.function);
  const int needed = int(launch_.sharedMemBytes);
  const int most = attribute(device_, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  if (fixed + needed > most) {
    throw std::runtime_error("the kernel needs " + std::to_string(fixed + needed) +
                             " bytes of shared memory per block, and the GPU has " + std::to_string(most) +
                             "; emit the operation for this GPU");
  }
  const auto set = [&](CUfunction_attribute which, int value) {
    DRIVER_CALL(cuFuncSetAttribute, loaded_.function, which, value);
  };
  set(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, needed);
  const uint32_t cluster = cleave::cluster_size(config);
  int resident = 0;
  if (cluster > 1) {
    // Clusters of more than 8 blocks have to be asked for.
    if (cluster > 8) set(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1);
    DRIVER_CALL(cuOccupancyMaxActiveClusters, &resident, loaded_.function, &launch_);
    resident_blocks_ = uint32_t(resident) * cluster;
  } else {
    DRIVER_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, &resident, loaded_.function, int(launch_.blockDimX),
                needed);
    resident_blocks_ = uint32_t(resident) * num_sms_;
  }
}

void Device::launch(void* params, uint32_t blocks, CUstream stream) const {
  CUlaunchConfig launch = launch_;
  launch.gridDimX = blocks;
  launch.hStream = stream;
  enqueue(launch, loaded_.function, params, cleave::has_static_operand(kernel_->config), attributes_);
}

void Device::join(const cleave::Joins& joins, const void* partials, const cleave::GemmArguments& arguments,
                  CUstream stream) const {
  if (joins.blocks() == 0) return;
  cleave::ReduceParams params = joins.params(partials, arguments);
  CUlaunchConfig launch = {};
  launch.gridDimX = joins.blocks();
  launch.gridDimY = joins.outputs();
  launch.gridDimZ = launch.blockDimY = launch.blockDimZ = 1;
  launch.blockDimX = cleave::kReduceThreads;
  launch.hStream = stream;
  const cleave::LaunchAttributes attributes[] = {cleave::launch_attributes(1, false, false),
                                                 cleave::launch_attributes(1, true, false)};
  enqueue(launch, loaded_reduce_.function, &params, false, attributes);
}

void Device::enqueue(CUlaunchConfig launch, CUfunction function, void* params, bool loads_early,
                     const cleave::LaunchAttributes* attributes) const {
  const ContextGuard guard(context_);
  const CUresult result = cleave::launch_in_chain(
      can_overlap_, loads_early, [&] { return capture_point(launch.hStream); },
      [&](bool overlaps) {
        launch.attrs = const_cast<CUlaunchAttribute*>(attributes[overlaps].list);
        launch.numAttrs = attributes[overlaps].count;
        return DRIVER(cuLaunchKernelEx)(&launch, function, &params, nullptr);
      });
  check(result, "cuLaunchKernelEx");
}

}  // namespace emitted::operation

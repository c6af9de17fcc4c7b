#include "runtime/module.h"

#include "base/refuse.h"
#include "cleave/device.h"
#include "cleave/error.h"
#include "launch/launch_attributes.h"
#include "runtime/context.h"
#include "runtime/driver.h"

namespace cleave {
namespace {

constexpr uint32_t portable_cluster_ctas = 8;  // larger clusters exist only on some devices

// A launch's configuration with the storage of its attributes: on the stack, so launching is
// thread-safe and allocates nothing.
class LaunchConfig {
 public:
  LaunchConfig(const LaunchShape& shape, bool overlaps, CUstream stream)
      : attributes_(launch_attributes(shape.cluster, overlaps, shape.cooperative)) {
    config_.gridDimX = shape.grid.x;
    config_.gridDimY = shape.grid.y;
    config_.gridDimZ = shape.grid.z;
    config_.blockDimX = shape.block.x;
    config_.blockDimY = shape.block.y;
    config_.blockDimZ = shape.block.z;
    config_.sharedMemBytes = shape.dynamic_shared_bytes;
    config_.hStream = stream;
    config_.attrs = attributes_.list;
    config_.numAttrs = attributes_.count;
  }
  LaunchConfig(const LaunchConfig&) = delete;
  LaunchConfig& operator=(const LaunchConfig&) = delete;

  const CUlaunchConfig* get() const { return &config_; }

 private:
  LaunchAttributes attributes_;
  CUlaunchConfig config_ = {};
};

}  // namespace

Kernel::Kernel(const CompiledKernel& compiled, const char* entry, int device, KernelLimits limits)
    : device_(device),
      can_overlap_(launches_overlap(device_info(device).compute_capability, driver_version())),
      resources_(compiled.resources) {
  const ContextGuard context(device);
  const RelaxedCapture relaxed;
  const Driver& cuda = driver();
  check(cuda.module_load_data(&module_, compiled.cubin.data()), "cuModuleLoadData");
  try {
    check(cuda.module_get_function(&function_, module_, entry), "cuModuleGetFunction");
    const uint32_t available = uint32_t(device_info(device).shared_memory_per_block) - resources_.static_shared_bytes;
    if (limits.dynamic_shared_bytes > available) {
      refuse(ErrorCode::unsupported, "the kernel needs {} bytes of shared memory per block; device {} ({}) has {}",
             limits.dynamic_shared_bytes, device, device_info(device).name, available);
    }
    check(cuda.func_set_attribute(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                  int(limits.dynamic_shared_bytes)),
          "cuFuncSetAttribute(MAX_DYNAMIC_SHARED_SIZE_BYTES)");
    if (limits.cluster_ctas > portable_cluster_ctas) {
      check(cuda.func_set_attribute(function_, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
            "cuFuncSetAttribute(NON_PORTABLE_CLUSTER_SIZE_ALLOWED)");
    }
  } catch (...) {
    cuda.module_unload(module_);
    throw;
  }
}

Kernel::~Kernel() {
  try {
    const ContextGuard context(device_);
    driver().module_unload(module_);
  } catch (const Error&) {
    // The driver is gone, and the module with it.
  }
}

void Kernel::launch(const LaunchShape& shape, CUstream stream, const void* params) const {
  void* arguments[] = {const_cast<void*>(params)};
  const CUresult result = launch_in_chain(
      shape.programmatic && can_overlap_, shape.loads_early, [&] { return capture_point(stream); },
      [&](bool overlaps) {
        const LaunchConfig config(shape, overlaps, stream);
        return driver().launch_kernel_ex(config.get(), function_, arguments, nullptr);
      });
  if (result == CUDA_SUCCESS) return;
  if (result == CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE) {
    refuse(ErrorCode::unsupported,
           "the kernel's {} CTAs wait for each other, and the stream's context cannot run all of them at once (a green "
           "context, or MPS's limits); use split_k_mode=\"parallel\"",
           shape.grid.x * shape.grid.y * shape.grid.z);
  }
  check_stream(stream, device_);
  throw_driver_error(result, "cuLaunchKernelEx");
}

int Kernel::max_active_clusters(const LaunchShape& shape) const {
  const ContextGuard context(device_);
  int count = 0;
  if (shape.cluster > 1) {
    const LaunchConfig config(shape, shape.programmatic && can_overlap_, nullptr);
    check(driver().occupancy_max_active_clusters(&count, function_, config.get()), "cuOccupancyMaxActiveClusters");
    return count;
  }
  const int threads = int(shape.block.x * shape.block.y * shape.block.z);
  check(driver().occupancy_max_active_blocks_per_multiprocessor(&count, function_, threads, shape.dynamic_shared_bytes),
        "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  return count * device_info(device_).num_sms;
}

}  // namespace cleave

// A compiled kernel on a device: loading and launching it.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cleave/core/api.h"
#include "jit/compiled_kernel.h"

namespace cleave {

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};

struct LaunchShape {
  Dim3 grid = {};
  Dim3 block = {};
  uint32_t cluster = 1;  ///< CTAs along x; 1: no cluster launch
  uint32_t dynamic_shared_bytes = 0;
  /// May start before the stream's previous kernel has ended, if launches can overlap on this device
  /// (launch_attributes.h); the kernel waits by griddepcontrol.
  bool programmatic = false;
  /// Such a kernel loads what no launch writes before it waits.
  bool loads_early = false;
  /// All CTAs are resident together, or the launch fails: for those that wait for each other.
  bool cooperative = false;
};

/// What a kernel needs to be allowed before it is launched.
struct KernelLimits {
  uint32_t dynamic_shared_bytes = 0;
  uint32_t cluster_ctas = 1;

  friend bool operator==(const KernelLimits&, const KernelLimits&) = default;
};

/// An entry point in the primary context of one device. Immutable, thread-safe.
class Kernel {
 public:
  /// Loads the cubin; safe while a stream is capturing. Throws Error(driver).
  Kernel(const CompiledKernel& compiled, const char* entry, int device, KernelLimits limits);
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  /// Enqueues; neither allocates nor synchronises. `params` is the kernel's one argument, copied
  /// before the return. The device must be current (ContextGuard).
  CLEAVE_TOOLS void launch(const LaunchShape& shape, CUstream stream, const void* params) const;

  /// Clusters (CTAs, where a cluster is one CTA) of this shape that the device can run at the
  /// same time.
  int max_active_clusters(const LaunchShape& shape) const;

  const KernelResources& resources() const { return resources_; }
  int device() const { return device_; }

 private:
  int device_;
  bool can_overlap_;
  KernelResources resources_;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
};

}  // namespace cleave

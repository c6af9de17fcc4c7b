// A kernel that is found or compiled when it is first needed.
#pragma once

#include <atomic>

#include "runtime/kernel_cache.h"

namespace cleave {

/// Thread-safe.
class LazyKernel {
 public:
  /// The kernel of `request()`, which is always the same one: plans are many, and do not keep the
  /// text. Costs nothing from the second call on. Throws Error(capture) if the kernel has to be
  /// compiled while `stream` is capturing. The device must be current (ContextGuard).
  template <class Request>
  const Kernel& get(CUstream stream, const Request& request) const {
    if (const Kernel* kernel = kernel_.load(std::memory_order_acquire)) return *kernel;
    return find(stream, request());
  }

 private:
  const Kernel& find(CUstream stream, const KernelRequest& request) const;

  mutable std::atomic<const Kernel*> kernel_ = nullptr;
};

}  // namespace cleave

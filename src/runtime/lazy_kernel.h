// A kernel that is found or compiled when it is first needed.
#pragma once

#include <atomic>

#include "runtime/kernel_cache.h"

namespace cleave {

/// Thread-safe.
class LazyKernel {
 public:
  explicit LazyKernel(KernelRequest request) : request_(std::move(request)) {}

  /// Costs nothing from the second call on. Throws Error(capture) if the kernel has to be compiled
  /// while `stream` is capturing. The device must be current (ContextGuard).
  const Kernel& get(CUstream stream) const;

  const std::string& source() const { return request_.source; }

 private:
  const KernelRequest request_;
  mutable std::atomic<const Kernel*> kernel_ = nullptr;
};

}  // namespace cleave

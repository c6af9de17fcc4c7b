// A kernel that is found or compiled when it is first needed.
#pragma once

#include <atomic>
#include <string>

#include "runtime/kernel_cache.h"

namespace cleave {

/// Thread-safe.
class LazyKernel {
 public:
  /// `name` is for messages.
  LazyKernel(KernelRequest request, std::string name)
      : request_(std::move(request)), name_(std::move(name)) {}

  /// Costs nothing from the second call on. Throws Error(capture) if the kernel has to be compiled
  /// while `stream` is capturing. The device must be current (ContextGuard).
  const Kernel& get(CUstream stream) const;

  const std::string& source() const { return request_.source; }

 private:
  const KernelRequest request_;
  const std::string name_;
  mutable std::atomic<const Kernel*> kernel_ = nullptr;
};

}  // namespace cleave

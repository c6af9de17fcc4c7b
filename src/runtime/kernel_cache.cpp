#include "runtime/kernel_cache.h"

#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "base/refuse.h"
#include "cleave/config/arch_traits.h"
#include "cleave/device.h"
#include "jit/compiler.h"
#include "process/fork.h"

namespace cleave {
namespace {

struct Slot {
  Slot(int device, std::string_view source) : device(device), source(source) {}

  const int device;
  const std::string_view source;  // the end of its key
  ForkMutex loading;
  std::atomic<const Kernel*> kernel = nullptr;
};

class KernelCache {
 public:
  static KernelCache& instance() {
    static constinit Lazy<KernelCache> cache;
    return cache.get();
  }

  Slot& slot(const KernelRequest& request) {
    const std::string key =
        fmt::format("{} {} {} {}\n{}", request.device, request.entry, request.limits.dynamic_shared_bytes,
                    request.limits.cluster_ctas, request.source);
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] = slots_.try_emplace(key);
    if (is_new) {
      const std::string_view text = found->first;
      found->second = std::make_unique<Slot>(request.device, text.substr(text.size() - request.source.size()));
    }
    return *found->second;
  }

  std::vector<KernelSource> loaded() {
    const std::lock_guard lock(mutex_);
    std::vector<KernelSource> sources;
    for (const auto& [key, slot] : slots_) {
      if (slot->kernel.load()) sources.push_back({std::string(slot->source), device_arch(slot->device)});
    }
    return sources;
  }

 private:
  ForkSharedMutex mutex_;
  std::unordered_map<std::string, std::unique_ptr<Slot>> slots_;
};

}  // namespace

const Kernel& load_kernel(const KernelRequest& request) {
  Slot& slot = KernelCache::instance().slot(request);
  const std::lock_guard lock(slot.loading);
  if (!slot.kernel.load()) {
    const CompiledKernel compiled = compile(request.source, device_arch(request.device));
    slot.kernel.store(new Kernel(compiled, request.entry, request.device, request.limits));
  }
  return *slot.kernel.load();
}

const Kernel* find_kernel(const KernelRequest& request) {
  return KernelCache::instance().slot(request).kernel.load();
}

std::vector<KernelSource> loaded_sources() {
  return KernelCache::instance().loaded();
}

std::string device_arch(int device) {
  const DeviceInfo& info = device_info(device);
  if (info.compute_capability < 80) {
    refuse(ErrorCode::unsupported, "device {} ({}) is sm_{}; the kernels need sm_80 or newer", device, info.name,
           info.compute_capability);
  }
  return fmt::format("sm_{}{}", info.compute_capability, arch_traits(info.compute_capability).is_specific ? "a" : "");
}

}  // namespace cleave

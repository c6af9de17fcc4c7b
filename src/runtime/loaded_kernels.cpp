#include "runtime/loaded_kernels.h"

#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "process/fork.h"

namespace cleave {
namespace {

struct Key {
  GemmConfig config;
  int device;

  friend bool operator==(const Key&, const Key&) = default;
};

/// Mixes what distinguishes kernels of one process in practice; equality decides the rest.
struct Hash {
  size_t operator()(const Key& key) const {
    const GemmConfig& c = key.config;
    uint64_t hash = uint64_t(key.device) + 1;
    for (const uint64_t part :
         {uint64_t(c.tile.m) << 48 | uint64_t(c.tile.n) << 32 | uint64_t(c.tile.k) << 16 | c.tile.stages,
          uint64_t(c.cluster.k) << 32 | uint64_t(c.cluster.multicast_m) << 24 | uint64_t(c.cluster.multicast_n) << 16 |
              uint64_t(c.schedule.split) << 8 | uint64_t(c.warps.pingpong) << 4 | uint64_t(c.store.by_tma),
          uint64_t(c.operands.a) << 48 | uint64_t(c.operands.a_major) << 40 | uint64_t(c.operands.b_major) << 32 |
              uint64_t(c.epilogue.d) << 24 | uint64_t(c.epilogue.order) << 20 | uint64_t(c.epilogue.bias) << 12 |
              uint64_t(c.epilogue.has_c) << 8 | uint64_t(c.conv.kind) << 4 | uint64_t(c.epilogue.scaling),
          uint64_t(reinterpret_cast<uintptr_t>(c.epilogue.function.function))}) {
      hash = (hash ^ part) * 0xff51afd7ed558ccdull;
      hash ^= hash >> 32;
    }
    return size_t(hash);
  }
};

class LoadedKernels {
 public:
  const Kernel* find(const Key& key) const {
    const std::shared_lock lock(mutex_);
    const auto found = kernels_.find(key);
    return found == kernels_.end() ? nullptr : found->second;
  }

  void add(const Key& key, const Kernel& kernel) {
    const std::unique_lock lock(mutex_);
    kernels_.emplace(key, &kernel);
  }

  static LoadedKernels& instance() {
    static constinit Lazy<LoadedKernels> kernels;
    return kernels.get();
  }

 private:
  mutable ForkSharedMutex mutex_;
  std::unordered_map<Key, const Kernel*, Hash> kernels_;
};

}  // namespace

const Kernel* find_loaded(const GemmConfig& config, int device) {
  return LoadedKernels::instance().find({config, device});
}

void add_loaded(const GemmConfig& config, int device, const Kernel& kernel) {
  LoadedKernels::instance().add({config, device}, kernel);
}

}  // namespace cleave

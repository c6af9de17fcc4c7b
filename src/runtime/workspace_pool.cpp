#include "runtime/workspace_pool.h"

#include <algorithm>
#include <functional>

#include "cleave/device.h"
#include "process/fork.h"
#include "runtime/context.h"
#include "runtime/driver.h"

namespace cleave {
namespace {

class CudaMemory : public DeviceMemory {
 public:
  void* allocate(int device, size_t bytes, bool zeroed) override {
    const ContextGuard context(device);
    const RelaxedCapture relaxed;
    CUdeviceptr memory = 0;
    check(driver().mem_alloc(&memory, bytes), "cuMemAlloc for a workspace");
    if (zeroed) zero(device, memory, bytes);
    return reinterpret_cast<void*>(memory);
  }

  void free(int device, void* memory) override {
    const ContextGuard context(device);
    check(driver().ctx_synchronize(), "cuCtxSynchronize");
    check(driver().mem_free(reinterpret_cast<CUdeviceptr>(memory)), "cuMemFree");
  }

 private:
  // On a stream of its own and waited for: zeroing must not become part of a capture, nor wait for
  // the default stream.
  void zero(int device, CUdeviceptr memory, size_t bytes) {
    CUstream& stream = streams_[device];
    if (!stream) check(driver().stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(driver().memset_d8_async(memory, 0, bytes, stream), "cuMemsetD8Async");
    check(driver().stream_synchronize(stream), "cuStreamSynchronize");
  }

  std::unordered_map<int, CUstream> streams_;  // guarded by the pool's mutex
};

WorkspacePool& process_pool() {
  static constinit Lazy<CudaMemory> memory;
  static constinit Lazy<WorkspacePool> pool;
  return pool.get([] { return WorkspacePool(memory.get()); });
}

}  // namespace

size_t WorkspacePool::Hash::operator()(const OrderedWork& owner) const {
  const uint64_t mixed = (owner.stream * 0x9E3779B97F4A7C15u) ^ (owner.capture * 0xC2B2AE3D27D4EB4Fu);
  return std::hash<uint64_t>()(mixed + uint64_t(owner.device));
}

Workspace WorkspacePool::get(const OrderedWork& owner, const WorkspaceSize& size) {
  const std::lock_guard lock(mutex_);
  Entry& entry = entries_[owner];
  return {.counters = fit(owner.device, entry.counters, size.counters, true),
          .partials = fit(owner.device, entry.partials, size.partials, false)};
}

void* WorkspacePool::fit(int device, Buffer& buffer, size_t size, bool zeroed) {
  if (size == 0) return nullptr;
  if (size > buffer.size) {
    // Doubling keeps all outgrown buffers together smaller than the newest.
    const size_t grown = std::max({size, 2 * buffer.size, kSmallestBuffer});
    allocations_.reserve(allocations_.size() + 1);
    buffer.data = memory_.allocate(device, grown, zeroed);
    buffer.size = grown;
    allocations_.push_back({device, buffer.data});
  }
  return buffer.data;
}

void WorkspacePool::release() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
  while (!allocations_.empty()) {
    const Allocation last = allocations_.back();
    memory_.free(last.device, last.data);
    allocations_.pop_back();
  }
}

Workspace pooled_workspace(int device, CUstream stream, const WorkspaceSize& size) {
  if (size.counters == 0 && size.partials == 0) return {};
  const ContextGuard context(device);
  try {
    return process_pool().get(ordered_work(device, stream), size);
  } catch (const Error&) {
    check_stream(stream, device);
    throw;
  }
}

void release_workspaces() {
  process_pool().release();
}

}  // namespace cleave

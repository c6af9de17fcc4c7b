// Workspaces for callers who bring none: kept, and handed to the work that is ordered after their
// last use.
//
// Work on one stream runs in order, so it can share a workspace; so can the nodes that one stream
// adds to one captured graph. Everything else may run at the same time, and gets memory of its own.
// Nothing is freed before release(): a graph may be replayed at any time, and its nodes hold the
// addresses; and nothing tells that a stream is gone. So the pool keeps, for each stream and each
// capture that ever needed one, less than four times its largest workspace (kSmallestBuffer each of
// counters and partials if that is more).
#pragma once

#include <cuda.h>

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "process/fork.h"
#include "runtime/ordered_work.h"

namespace cleave {

/// Bytes of the two parts of a workspace. They never share memory: kernels leave counters zero for
/// the next launch, whichever plan it belongs to, and partials as they are.
struct WorkspaceSize {
  size_t counters = 0;
  size_t partials = 0;
};

/// A part of size 0 is a null pointer.
struct Workspace {
  void* counters = nullptr;
  void* partials = nullptr;
};

inline constexpr size_t kSmallestBuffer = 64 << 10;

/// What the pool needs of a device; the tests have one on the host.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual void* allocate(int device, size_t bytes, bool zeroed) = 0;
  virtual void free(int device, void* memory) = 0;
};

/// Thread-safe.
class WorkspacePool {
 public:
  explicit WorkspacePool(DeviceMemory& memory) : memory_(memory) {}

  /// At least `size`, for work of `owner` only. Allocates only if the owner never had as much.
  Workspace get(const OrderedWork& owner, const WorkspaceSize& size);

  /// Frees everything; work that uses it must have been enqueued, and captured graphs must not be
  /// replayed.
  void release();

 private:
  struct Buffer {
    void* data = nullptr;
    size_t size = 0;
  };
  struct Entry {
    Buffer counters, partials;
  };
  struct Hash {
    size_t operator()(const OrderedWork& owner) const;
  };
  struct Allocation {
    int device = 0;
    void* data = nullptr;
  };

  void* fit(int device, Buffer& buffer, size_t size, bool zeroed);

  DeviceMemory& memory_;
  ForkMutex mutex_;
  std::unordered_map<OrderedWork, Entry, Hash> entries_;
  std::vector<Allocation> allocations_;  // outgrown ones too
};

/// The process's pool: a workspace for the next launch on `stream`, good until release_workspaces(), or
/// nothing if `size` is. Throws Error(invalid_argument) for a stream of another device. Outside prepare() it allocates
/// only for a stream, a capture or a size it has not seen. Safe while `stream` is capturing. Counters are zero.
Workspace pooled_workspace(int device, CUstream stream, const WorkspaceSize& size);

}  // namespace cleave

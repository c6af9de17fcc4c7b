// Where an operator runs: the GPU of its tensors, on PyTorch's current stream.
#pragma once

#include <functional>
#include <map>
#include <mutex>

#include "call.h"
#include "device.h"
#include "driver.h"
#include "torch_ops/stable.h"
#include "torch_partials.h"
#include "torch_workspaces.h"

namespace emitted::operation {

/// The operation on one GPU.
struct Place {
  explicit Place(int32_t ordinal) : device(ordinal) {}

  const Device device;
  Workspaces workspaces;
};

/// Made at the first use of a GPU and then kept: at exit, the driver goes before static objects do.
inline Place& place_on(int32_t device) {
  static auto& mutex = *new std::mutex;
  static auto& places = *new std::map<int32_t, Place>;
  const std::lock_guard lock(mutex);
  return places.try_emplace(device, device).first->second;
}

/// Enqueues on PyTorch's current stream.
inline void launch(const Given& given, int32_t device) {
  Place& place = place_on(device);
  const ContextGuard guard(place.device.context());
  const auto stream = static_cast<CUstream>(cleave::torch_ops::current_stream(device));
  Partials partials;
  const auto find_workspace = [&](size_t counter_size, size_t partial_size) {
    Workspace workspace = place.workspaces.get(stream, counter_size, partial_size);
    if (workspace.partials == nullptr) workspace.partials = partials.get(partial_size, device);
    return workspace;
  };
  enqueue(given, place.device, std::ref(find_workspace), stream);  // a copy would be on the heap
}

}  // namespace emitted::operation

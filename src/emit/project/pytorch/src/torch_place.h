// Where an operator runs: the GPU of its tensors, on PyTorch's current stream.
#pragma once

#include <functional>
#include <map>
#include <mutex>

#include "emitted/operation.h"

#include "driver.h"
#include "torch_partials.h"
#include "torch_tensors.h"
#include "torch_workspaces.h"

// Declared here because PyTorch's header shows it to code that is built for CUDA only. Weak, so
// that the build loads beside a PyTorch without CUDA, where it is missing.
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index,
                                                                                   void** ret_stream);

namespace emitted::operation {

/// The operation on one GPU.
struct Place {
  explicit Place(int32_t device) : operation(device) {
    CUdevice handle = 0;
    check(driver().cuDeviceGet(&handle, device), "cuDeviceGet");
    check(driver().cuDevicePrimaryCtxRetain(&context, handle), "cuDevicePrimaryCtxRetain");
  }

  Operation operation;
  CUcontext context = nullptr;  // PyTorch's
  Workspaces workspaces;
};

/// Made at the first use of a GPU and then kept: at exit, the driver goes before static objects do.
inline Place& place_on(int32_t device) {
  static auto& mutex = *new std::mutex;
  static auto& places = *new std::map<int32_t, Place>;
  const std::lock_guard lock(mutex);
  return places.try_emplace(device, device).first->second;
}

inline CUstream current_stream(int32_t device) {
  void* stream = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
  return static_cast<CUstream>(stream);
}

/// Enqueues on PyTorch's current stream.
inline void launch(const Arguments& arguments, int32_t device) {
  Place& place = place_on(device);
  const ContextGuard guard(place.context);
  const CUstream stream = current_stream(device);
  Partials partials;
  const auto find_workspace = [&](size_t counter_size, size_t partial_size) {
    Workspace workspace = place.workspaces.get(stream, counter_size, partial_size);
    if (workspace.partials == nullptr) workspace.partials = partials.get(partial_size, device);
    return workspace;
  };
  place.operation(arguments, std::ref(find_workspace), stream);  // a copy would be on the heap
}

}  // namespace emitted::operation

// Memory for partial sums, from PyTorch's allocator and without a tensor around it: to make one takes
// several times as long as to find the memory.
#pragma once

#include <torch/csrc/stable/accelerator.h>

#include <optional>

// As in torch_place.h: PyTorch's header hides them.
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_cuda_caching_allocator_raw_alloc(uint64_t nbytes,
                                                                                            void** ret_ptr);
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_cuda_caching_allocator_raw_delete(void* ptr);

namespace emitted::operation {

/// Freed once the launch is enqueued: who gets this memory next follows on the same stream.
class Partials {
 public:
  Partials() = default;
  ~Partials() { aoti_torch_cuda_caching_allocator_raw_delete(data_); }
  Partials(const Partials&) = delete;
  Partials& operator=(const Partials&) = delete;

  /// For PyTorch's current stream of the GPU `device`.
  void* get(size_t bytes, int32_t device) {
    namespace accelerator = torch::stable::accelerator;
    std::optional<accelerator::DeviceGuard> guard;
    // The allocator serves the current GPU, whichever the operands are on.
    if (accelerator::getCurrentDeviceIndex() != device) guard.emplace(device);
    TORCH_ERROR_CODE_CHECK(aoti_torch_cuda_caching_allocator_raw_alloc(bytes, &data_));
    return data_;
  }

 private:
  void* data_ = nullptr;
};

}  // namespace emitted::operation

// A GPU's memory that several processes have: a physical allocation of the driver's, without CUDA IPC, which keeps
// memory of a process only while that lives.
#pragma once

#include <cuda.h>

#include "peers/block.h"

namespace cleave {

class DeviceBlock final : public Block {
 public:
  DeviceBlock(int device, size_t bytes);
  /// `device` is the one that gets access, wherever the memory is.
  DeviceBlock(int device, const Descriptor& from, size_t bytes);
  ~DeviceBlock() override;

  void* data() const override { return reinterpret_cast<void*>(address_); }
  size_t bytes() const override { return bytes_; }
  Descriptor exported() const override;

 private:
  void map();
  void zero() const;
  void release() noexcept;

  const int device_;
  size_t bytes_;
  CUmemGenericAllocationHandle memory_ = 0;
  CUdeviceptr address_ = 0;
  bool mapped_ = false;
};

}  // namespace cleave

// A GPU with its kernel loaded.
#pragma once

#include <cuda.h>

#include "kernel.h"
#include "launch/launch_attributes.h"
#include "launch/reductions.h"

namespace emitted::operation {

class Device {
 public:
  /// `of_rest`: with the kernel of a call's second launch, where `has_rest`.
  explicit Device(int ordinal, bool of_rest = false);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  CUcontext context() const { return context_; }
  const Kernel& kernel() const { return *kernel_; }
  bool has_rest() const { return has_rest_; }
  uint32_t num_sms() const { return num_sms_; }

  /// Blocks of the kernel that run at the same time.
  uint32_t resident_blocks() const { return resident_blocks_; }

  /// `params`: of the kernel's type.
  void launch(void* params, uint32_t blocks, CUstream stream) const;

  /// Joins what a launch has left of partial results, if any.
  void join(const cleave::Joins& joins, const void* partials, const cleave::GemmArguments& arguments,
            CUstream stream) const;

 private:
  void load_kernel();
  void prepare_launch();
  void enqueue(CUlaunchConfig launch, CUfunction function, void* params, bool loads_early,
               const cleave::LaunchAttributes* attributes) const;

  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  const Kernel* kernel_ = nullptr;
  bool has_rest_ = false;
  LoadedKernel loaded_, loaded_reduce_;
  cleave::LaunchAttributes attributes_[2];  // alone, and overlapping what is ahead
  bool can_overlap_ = false;
  CUlaunchConfig launch_ = {};  // but for the grid and the stream
  uint32_t num_sms_ = 0, resident_blocks_ = 0;
};

}  // namespace emitted::operation

// Ranks that are GPUs: a kernel waits.
#pragma once

#include "cleave/peers/gather_config.h"
#include "peers/mapped_group.h"
#include "peers/push_launch.h"
#include "runtime/lazy_kernel.h"

namespace cleave {

class DeviceGroup final : public MappedGroup {
 public:
  DeviceGroup(int rank, int device, Memory memory);
  ~DeviceGroup() override;

  using MappedGroup::gather;
  using MappedGroup::push;

  int device() const override { return device_; }

 private:
  GroupRecord& record() const override { return *record_; }
  void gather(const MeetingParams& meeting, size_t offset, size_t bytes, void* out, void* stream) const override;
  void push(const MeetingParams& meeting, std::span<const Rows> parts, void* stream) const override;
  void quiesce() const override;
  void say_reset(uint64_t word, int to) const override;
  std::array<uint64_t, kMostRanks> read_resets() const override;
  void clear() const override;
  void mend() const override;

  const Kernel& kernel(const GatherConfig& config, CUstream stream) const;

  const int device_;
  LazyKernel kernels_[4];  // a barrier's, and by the bytes of a piece
  LazyKernel pushing_[kPushingKernels];
  GroupRecord* record_ = nullptr;  // of the host's memory, which the device writes
};

}  // namespace cleave

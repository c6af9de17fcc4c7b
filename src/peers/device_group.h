// Ranks that are GPUs: a kernel waits.
#pragma once

#include "peers/mapped_group.h"
#include "runtime/module.h"

namespace cleave {

class DeviceGroup final : public MappedGroup {
 public:
  DeviceGroup(int rank, int device, Memory memory);
  ~DeviceGroup() override;

  int device() const override { return device_; }

 private:
  GroupRecord& record() const override { return *record_; }
  void meet(const MeetingParams& params, void* stream) const override;

  const int device_;
  const Kernel& barrier_;
  GroupRecord* record_ = nullptr;  // of the host's memory, which the device writes
};

}  // namespace cleave

// Ranks that are threads or processes of the host: the calling thread waits.
#pragma once

#include "cleave/problem.h"
#include "peers/mapped_group.h"

namespace cleave {

class HostGroup final : public MappedGroup {
 public:
  using MappedGroup::MappedGroup;

  int device() const override { return kCpu; }

 private:
  GroupRecord& record() const override { return record_; }
  void meet(const MeetingParams& params, void* stream) const override;

  mutable GroupRecord record_;
};

}  // namespace cleave

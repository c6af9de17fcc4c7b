// Ranks that are threads or processes of the host: the calling thread waits.
#pragma once

#include "cleave/problem.h"
#include "peers/mapped_group.h"

namespace cleave {

class HostGroup final : public MappedGroup {
 public:
  using MappedGroup::gather;
  using MappedGroup::MappedGroup;
  using MappedGroup::push;

  int device() const override { return kCpu; }

 private:
  GroupRecord& record() const override { return record_; }
  void gather(const MeetingParams& meeting, size_t offset, size_t bytes, void* out, void* stream) const override;
  void push(const MeetingParams& meeting, std::span<const Rows> parts, void* stream) const override;
  void quiesce() const override {}
  void say_reset(uint64_t word, int to) const override;
  std::array<uint64_t, kMostRanks> read_resets() const override;
  void clear() const override;
  void mend() const override;
  void meet(const MeetingParams& params) const;

  mutable GroupRecord record_;
};

}  // namespace cleave

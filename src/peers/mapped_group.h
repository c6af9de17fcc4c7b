// A group over blocks of memory that are mapped here.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cleave/group.h"
#include "cleave/peers/meeting_params.h"
#include "peers/block.h"
#include "process/fork.h"

namespace cleave {

/// CLEAVE_PEER_TIMEOUT in seconds. Throws Error(invalid_argument) for what is no such number.
double peer_timeout();

/// Where the record is, and who waits, differ between devices.
class MappedGroup : public Group {
 public:
  struct Memory {
    std::vector<void*> addresses;  // of each rank's block
    size_t block_bytes = 0;
    std::vector<std::unique_ptr<Block>> blocks;  // what keeps them; empty: somebody else
  };

  MappedGroup(int rank, Memory memory);

  int rank() const override { return rank_; }
  int size() const override { return int(memory_.addresses.size()); }
  size_t bytes() const override { return memory_.block_bytes - reserved(size()); }
  void* staging(int rank) const override;
  void barrier(std::string_view call, void* stream, bool beside) const override;
  void gather(const void* own, size_t bytes, void* out, std::string_view call, void* stream) const override;
  void push(std::span<const Rows> parts, std::string_view call, void* stream) const override;
  MeetingParams meeting(std::string_view call) const override;
  void abort() const override;
  void reset() const override;
  std::string problem() const override;

 protected:
  virtual GroupRecord& record() const = 0;
  GroupHeader& header(int rank) const { return *static_cast<GroupHeader*>(memory_.addresses[size_t(rank)]); }
  /// After the meeting, `bytes` at `offset` of each rank's block.
  virtual void gather(const MeetingParams& meeting, size_t offset, size_t bytes, void* out, void* stream) const = 0;
  /// To each rank's block, and then the meeting.
  virtual void push(const MeetingParams& meeting, std::span<const Rows> parts, void* stream) const = 0;
  // What reset() asks of a device.
  /// Waits for all that was enqueued.
  virtual void quiesce() const = 0;
  /// Sets this rank's word in a rank's memory.
  virtual void say_reset(uint64_t word, int to) const = 0;
  /// All ranks' words.
  virtual std::array<uint64_t, kMostRanks> read_resets() const = 0;
  /// No meeting has been, and nothing has come, in this rank's memory, which is broken as yet.
  virtual void clear() const = 0;
  /// It is so no more.
  virtual void mend() const = 0;

 private:
  uint32_t aborts() const;

  /// A number for a call's text, which a record may name.
  uint32_t signature_of(std::string_view call) const;
  std::string call_of(uint32_t signature) const;

  const int rank_;
  const Memory memory_;
  const uint64_t timeout_;  // nanoseconds

  mutable ForkMutex resetting_;
  mutable uint32_t generation_ = 0;  // of resets, guarded by resetting_
  mutable ForkMutex mutex_;
  mutable std::unordered_map<uint32_t, std::string> calls_;
};

std::unique_ptr<MappedGroup> make_group(int rank, int device, MappedGroup::Memory memory);

}  // namespace cleave

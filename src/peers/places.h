// Which part of a group's staging a call has.
#pragma once

#include <memory>

#include "cleave/core/api.h"
#include "cleave/group.h"

namespace cleave {

/// Staging of all ranks, in places that calls take in turn.
///
/// A call writes to its place, of any rank, meets the other ranks, and reads. Nothing ends it: its place is written
/// again by the call after the next, when all ranks have met for the one between, and so have read. Captured calls have
/// two places of their own, and a graph's first call meets the others before it writes, since nobody knows which calls
/// ran before a replay.
///
/// All ranks take places alike. Not thread-safe, as a group's calls are in one order.
class CLEAVE_TOOLS Places {
 public:
  static constexpr int kCount = 4;

  explicit Places(std::shared_ptr<const Group> group);

  const Group& group() const { return *group_; }
  /// The size of a place.
  size_t bytes() const { return bytes_; }
  /// That of the next call, on `stream`. Throws as Group::barrier does.
  int next(void* stream);
  /// As at first, where all ranks do it: behind Group::reset.
  void reset() { *this = Places(group_); }
  /// Enqueues a copy to this rank's place, from so many bytes on. Throws Error(driver).
  void put(int place, size_t first, const void* data, size_t bytes, void* stream) const;
  /// Where a rank's place begins.
  char* at(int rank, int place) const { return static_cast<char*>(group_->staging(rank)) + size_t(place) * bytes_; }

 private:
  std::shared_ptr<const Group> group_;
  size_t bytes_;
  unsigned eager_ = 0, captured_ = 0;  // calls so far
  unsigned long long capture_ = 0;     // the last one
};

}  // namespace cleave

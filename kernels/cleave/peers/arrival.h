// What a rank tells its peers where they meet, and how long it waits for theirs: of kernels and of the CPU backend.
//
// A meeting is one of CTAs: the i-th of a launch meets the i-th of each peer's. Nothing is ever reset. A meeting has a
// number, its epoch, which each rank counts for itself in its own memory, so that a captured launch is right in every
// replay. A rank that is at epoch e has seen all others at e - 1, and none of them is beyond e + 1: two places for each
// peer, for even and odd epochs, never lose an arrival.
#pragma once

#include "cleave/core/macros.h"

namespace cleave {

inline constexpr uint32_t kMostRanks = 16;
inline constexpr uint32_t kMostCtas = 256;            // of a launch that meets
inline constexpr uint32_t kMostReadingCtas = 128;     // which keep the wire busy
inline constexpr uint32_t kMeetings = kMostCtas + 1;  // the last is of barriers on a stream beside

/// A rank has come, in a call that this stands for.
struct Arrival {
  uint32_t epoch = 0;
  uint32_t signature = 0;

  CLEAVE_HD constexpr uint64_t bits() const { return uint64_t(epoch) << 32 | signature; }
  CLEAVE_HD static constexpr Arrival of(uint64_t bits) { return {uint32_t(bits >> 32), uint32_t(bits)}; }
};

/// How each rank's block of memory begins; zeros at first.
struct GroupHeader {
  uint64_t arrivals[2][kMeetings][kMostRanks] = {};  // of each peer, which it writes
  uint32_t epochs[kMeetings] = {};                   // of the last meetings; these and what follows are the rank's own
  uint32_t broken = 0;                               // the group has been given up
  uint64_t resets[kMostRanks] = {};                  // of each rank, which it writes: how far its reset() is
};
inline constexpr uint32_t kGroupHeaderBytes = 128 << 10;
static_assert(sizeof(GroupHeader) <= kGroupHeaderBytes);

/// Pieces of 16 bytes that a thread sends each peer and receives together (pushed.h): fewer of more peers.
CLEAVE_HD constexpr uint32_t pushed_pieces(uint32_t ranks) {
  return ranks <= 2 ? 2 : 1;
}
inline constexpr uint32_t kPushingThreads = 256;  // of a CTA

/// Behind the header: what each peer's CTAs push to those of the same number here, for even and odd epochs.
CLEAVE_HD constexpr uint64_t pushed_offset(uint32_t ranks, uint32_t epoch, uint32_t sender, uint32_t cta) {
  const uint64_t bytes_of_cta = pushed_pieces(ranks) * kPushingThreads * 16;
  return kGroupHeaderBytes + ((epoch % 2 * ranks + sender) * kMostCtas + cta) * bytes_of_cta;
}

/// What of each rank's block is the group's; its staging follows.
CLEAVE_HD constexpr uint64_t reserved_bytes(uint32_t ranks) {
  return pushed_offset(ranks, 1, ranks, 0);
}

CLEAVE_HD constexpr uint64_t* arrival_of(GroupHeader& header, uint32_t epoch, uint32_t meeting, uint32_t peer) {
  return &header.arrivals[epoch % 2][meeting][peer];
}

/// How waiting for a peer ends.
enum class Outcome : uint32_t { arrived, late, disagrees, aborted };

/// What a rank's user reads of a meeting that was given up, in the host's memory.
struct GroupRecord {
  Outcome outcome = Outcome::arrived;  // written last
  uint32_t peer = 0;
  Arrival expected, seen;
  uint32_t abort = 0;  // how often the user has asked: ends all waiting
};

/// Looks at an arrival between two questions whether to go on, which take longer.
inline constexpr uint32_t kLooksAtOnce = 1024;

/// Until a peer's arrival is `expected`. `Host`: `load` of an arrival, which orders what comes after it; the time in
/// nanoseconds; whether the user has given up; and a pause.
template <class Host>
CLEAVE_HD Outcome wait_for(const Host& host, const uint64_t* arrival, Arrival expected, uint64_t timeout,
                           Arrival& seen) {
  uint64_t begin = 0;
  for (uint32_t looks = 1;; ++looks) {
    seen = Arrival::of(host.load(arrival));
    if (seen.epoch == expected.epoch)
      return seen.signature == expected.signature ? Outcome::arrived : Outcome::disagrees;
    if (looks % kLooksAtOnce != 0) continue;
    const uint64_t now = host.now();
    if (begin == 0) begin = now;
    if (now - begin >= timeout) return Outcome::late;
    if (host.gives_up()) return Outcome::aborted;
    host.pause();
  }
}

}  // namespace cleave

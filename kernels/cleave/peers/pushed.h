// Partial results that are sent, not fetched: each word says itself that it has come. So a small sum is one trip
// between GPUs, where a meeting and what is read behind it are three, and nothing is fenced.
//
// A word is sent as its complement, and zero says that nothing has come: who reads a place makes it zero again, before
// it comes to the next meeting, without which its peer writes there no more. The one word whose complement is zero is
// that of NaNs; another is sent for it, and what is added to a NaN is the same NaN.
#pragma once

#include "cleave/core/math.h"
#include "cleave/memory/channel_vector.h"
#include "cleave/peers/meeting.h"

namespace cleave {

using PushedVector = RawVector<16>;

/// Where the threads of a CTA find their pieces.
class CtaPlace {
 public:
  static constexpr uint32_t kMeetings = 1;

  CLEAVE_DEVICE explicit CtaPlace(const MeetingParams& p) : meeting_(p) {}

  CLEAVE_DEVICE const Meeting& meeting(uint32_t) const { return meeting_; }
  CLEAVE_DEVICE bool was_broken() const { return meeting_.is_broken(); }
  CLEAVE_DEVICE uint4* piece(uint32_t receiver, uint32_t sender, uint32_t number) const {
    char* const block = reinterpret_cast<char*>(meeting_.p.headers[receiver]);
    const uint64_t place = pushed_offset(meeting_.p.size, meeting_.arrival.epoch, sender, blockIdx.x);
    return reinterpret_cast<uint4*>(block + place) + number * blockDim.x + threadIdx.x;
  }

 private:
  Meeting meeting_;
};

CLEAVE_DEVICE void push(uint4* to, const PushedVector& vector) {
  const auto sent = [](uint32_t word) { return max_of(~word, 1u); };
  ptx::store_relaxed_system(
      to, make_uint4(sent(vector.words[0]), sent(vector.words[1]), sent(vector.words[2]), sent(vector.words[3])));
}

CLEAVE_DEVICE bool has_come(const uint4& v) {
  return v.x != 0 && v.y != 0 && v.z != 0 && v.w != 0;
}

CLEAVE_DEVICE PushedVector received(const uint4& v) {
  PushedVector vector;
  vector.words[0] = ~v.x, vector.words[1] = ~v.y, vector.words[2] = ~v.z, vector.words[3] = ~v.w;
  return vector;
}

/// Sends a thread's pieces to all peers, and receives theirs, as all[piece][rank]. Which of them exist is the same on
/// all ranks. `place`: says where they go, and which meetings they belong to. False: the group is broken, and `all`
/// is as it was.
template <uint32_t Ranks, uint32_t Pieces, class Place>
CLEAVE_DEVICE bool exchange(const Place& place, const PushedVector (&own)[Pieces], const bool (&exists)[Pieces],
                            PushedVector (&all)[Pieces][Ranks]) {
  const Meeting& first = place.meeting(0);
  const MeetingParams& p = first.p;
  if (place.was_broken()) return false;
  CLEAVE_NO_UNROLL
  for (uint32_t step = 1; step < Ranks; ++step) {
    const uint32_t next = p.rank + step, peer = next < Ranks ? next : next - Ranks;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Pieces; ++i)
      if (exists[i]) push(place.piece(peer, p.rank, i), own[i]);
  }
  if (first.has_peer()) {
    CLEAVE_UNROLL
    for (uint32_t m = 0; m < Place::kMeetings; ++m)
      ptx::store_relaxed_system(place.meeting(m).to(), place.meeting(m).arrival.bits());
  }

  const DeviceWaiting waiting{p.record};
  uint64_t begin = 0;
  uint4 come[Pieces][Ranks] = {};  // each is looked for until it has
  for (uint32_t looks = 1;; ++looks) {
    uint32_t lost = kMostRanks;  // whose pieces have not come
    CLEAVE_UNROLL
    for (uint32_t r = 0; r < Ranks; ++r) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < Pieces; ++i) {
        const bool sent = r != p.rank && exists[i];
        uint4& v = come[i][r];
        if (sent && !has_come(v)) v = ptx::load_relaxed_system(place.piece(p.rank, r, i));
        if (sent && !has_come(v)) lost = r;
      }
    }
    Outcome outcome = Outcome::arrived;
    Arrival expected = first.arrival, seen = expected;
    if (first.has_peer()) {
      CLEAVE_UNROLL
      for (uint32_t m = 0; m < Place::kMeetings; ++m) {
        const Meeting& meeting = place.meeting(m);
        const Arrival found = Arrival::of(ptx::load_relaxed_system(meeting.from()));
        const bool arrived = found.epoch == meeting.arrival.epoch;
        if (arrived && found.signature == meeting.arrival.signature) continue;
        lost = meeting.peer, expected = meeting.arrival, seen = found;
        if (arrived) outcome = Outcome::disagrees;
      }
    }
    if (lost == kMostRanks) break;
    if (outcome == Outcome::arrived && looks % kLooksAtOnce == 0) {
      if (first.is_broken()) return false;
      const uint64_t now = waiting.now();
      if (begin == 0) begin = now;
      if (now - begin >= p.timeout) outcome = Outcome::late;
      if (waiting.gives_up()) outcome = Outcome::aborted;
    }
    if (outcome == Outcome::arrived) continue;
    first.give_up(lost, outcome, expected, seen);
    return false;
  }
  CLEAVE_UNROLL
  for (uint32_t r = 0; r < Ranks; ++r) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Pieces; ++i) {
      all[i][r] = r == p.rank ? own[i] : received(come[i][r]);
      if (r != p.rank && exists[i]) *place.piece(p.rank, r, i) = make_uint4(0, 0, 0, 0);
    }
  }
  return true;
}

}  // namespace cleave

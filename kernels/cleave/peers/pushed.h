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

/// The thread's piece of its CTA's place.
CLEAVE_DEVICE uint4* pushed_piece(const MeetingParams& p, uint32_t receiver, uint32_t epoch, uint32_t sender,
                                  uint32_t piece) {
  char* const block = reinterpret_cast<char*>(p.headers[receiver]);
  const uint64_t place = pushed_offset(p.size, epoch, sender, blockIdx.x);
  return reinterpret_cast<uint4*>(block + place) + piece * blockDim.x + threadIdx.x;
}

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

/// By all threads: sends a thread's pieces to all peers, and receives theirs, as all[piece][rank]. Which of them exist
/// is the same on all ranks. False: the group is broken.
template <uint32_t Ranks, uint32_t Pieces>
CLEAVE_DEVICE bool exchange(const MeetingParams& p, const PushedVector (&own)[Pieces], const bool (&exists)[Pieces],
                            PushedVector (&all)[Pieces][Ranks]) {
  const Meeting meeting(p);
  if (meeting.is_broken()) return false;
  const Arrival arrival = meeting.arrival;
#pragma unroll 1
  for (uint32_t step = 1; step < Ranks; ++step) {
    const uint32_t next = p.rank + step, peer = next < Ranks ? next : next - Ranks;
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Pieces; ++i)
      if (exists[i]) push(pushed_piece(p, peer, arrival.epoch, p.rank, i), own[i]);
  }
  if (meeting.has_peer()) ptx::store_relaxed_system(meeting.to(), arrival.bits());

  const DeviceWaiting waiting{p.record};
  uint64_t begin = 0;
  bool met = false;
  uint4 come[Pieces][Ranks] = {};  // each is looked for until it has
  for (uint32_t looks = 1;; ++looks) {
    uint32_t lost = kMostRanks;  // whose pieces have not come
    CLEAVE_UNROLL
    for (uint32_t r = 0; r < Ranks; ++r) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < Pieces; ++i) {
        const bool sent = r != p.rank && exists[i];
        uint4& v = come[i][r];
        if (sent && !has_come(v)) v = ptx::load_relaxed_system(pushed_piece(p, p.rank, arrival.epoch, r, i));
        if (sent && !has_come(v)) lost = r;
      }
    }
    Arrival seen = arrival;
    if (meeting.has_peer()) {
      seen = Arrival::of(ptx::load_relaxed_system(meeting.from()));
      if (seen.epoch != arrival.epoch) lost = meeting.peer;
    }
    Outcome outcome = Outcome::arrived;
    if (seen.epoch == arrival.epoch && seen.signature != arrival.signature) {
      outcome = Outcome::disagrees;
      lost = meeting.peer;
    } else if (lost == kMostRanks) {
      met = true;
      break;
    } else if (looks % kLooksAtOnce == 0) {
      if (meeting.is_broken()) break;
      const uint64_t now = waiting.now();
      if (begin == 0) begin = now;
      if (now - begin >= p.timeout) outcome = Outcome::late;
      if (waiting.gives_up()) outcome = Outcome::aborted;
    }
    if (outcome == Outcome::arrived) continue;
    meeting.give_up(lost, outcome, seen);
    break;
  }
  if (met) {
    CLEAVE_UNROLL
    for (uint32_t r = 0; r < Ranks; ++r) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < Pieces; ++i) {
        all[i][r] = r == p.rank ? own[i] : received(come[i][r]);
        if (r != p.rank && exists[i]) *pushed_piece(p, p.rank, arrival.epoch, r, i) = make_uint4(0, 0, 0, 0);
      }
    }
  }
  return meeting.end(met);
}

}  // namespace cleave

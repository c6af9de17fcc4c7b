// Partial results that are sent, not fetched: each word says itself that it has come. So a small sum is one trip
// between GPUs, where a meeting and what is read behind it are three, and nothing is fenced.
//
// A word is sent as its complement, and zero says that nothing has come: who reads a place makes it zero again, before
// it comes to the next meeting, without which its peer writes there no more. The one word whose complement is zero is
// that of NaNs; another is sent for it, and what is added to a NaN is the same NaN.
//
// Awaited words are as they are, and ones say that nothing has come: no launch stores such a NaN.
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

/// How words that have come differ from those that have not: pushed ones, and awaited ones.
struct PushedWords {
  static constexpr uint32_t kNothing = 0;
  CLEAVE_DEVICE static bool has_come(uint32_t word) { return word != kNothing; }
  CLEAVE_DEVICE static uint32_t value(uint32_t word) { return ~word; }
};
template <uint32_t ElementBytes>
struct AwaitedWords {
  static constexpr uint32_t kNothing = ~0u;
  /// Elements of 2 bytes may be stored one by one.
  CLEAVE_DEVICE static bool has_come(uint32_t word) {
    if constexpr (ElementBytes == 2) return (word & 0xffffu) != 0xffffu && word >> 16 != 0xffffu;
    return word != kNothing;
  }
  CLEAVE_DEVICE static uint32_t value(uint32_t word) { return word; }
};

/// A thread's pieces of all ranks; those that are `wanted(piece, rank)` come to `place(piece, rank)`.
template <class Words, uint32_t Ranks, uint32_t Pieces>
struct Coming {
  uint4 words[Pieces][Ranks];

  CLEAVE_DEVICE Coming() {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Pieces; ++i) {
      CLEAVE_UNROLL
      for (uint32_t r = 0; r < Ranks; ++r) words[i][r] = nothing();
    }
  }

  CLEAVE_DEVICE static uint4 nothing() {
    return make_uint4(Words::kNothing, Words::kNothing, Words::kNothing, Words::kNothing);
  }
  CLEAVE_DEVICE static bool has_come(const uint4& v) {
    return Words::has_come(v.x) && Words::has_come(v.y) && Words::has_come(v.z) && Words::has_come(v.w);
  }

  CLEAVE_DEVICE PushedVector value(uint32_t piece, uint32_t rank) const {
    const uint4& v = words[piece][rank];
    PushedVector vector;
    vector.words[0] = Words::value(v.x), vector.words[1] = Words::value(v.y);
    vector.words[2] = Words::value(v.z), vector.words[3] = Words::value(v.w);
    return vector;
  }

  /// Looks again only for what has not come. Whose pieces those are; kMostRanks: nobody's.
  template <class Wanted, class Place>
  CLEAVE_DEVICE uint32_t look(const Wanted& wanted, const Place& place) {
    uint32_t lost = kMostRanks;
    CLEAVE_UNROLL
    for (uint32_t r = 0; r < Ranks; ++r) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < Pieces; ++i) {
        uint4& v = words[i][r];
        if (wanted(i, r) && !has_come(v)) v = ptx::load_relaxed_system(place(i, r));
        if (wanted(i, r) && !has_come(v)) lost = r;
      }
    }
    return lost;
  }

  /// Until all have come, and the thread's peer, if it `meets` one. False: the group is broken.
  template <class Wanted, class Place>
  CLEAVE_DEVICE bool wait(const Meeting& meeting, bool meets, const Wanted& wanted, const Place& place) {
    const Arrival arrival = meeting.arrival;
    const DeviceWaiting waiting{meeting.p.record};
    uint64_t begin = 0;
    for (uint32_t looks = 1;; ++looks) {
      uint32_t lost = look(wanted, place);
      if (Ranks == 1 && lost == 0) lost = meeting.p.rank;  // which waits for itself
      Arrival seen = arrival;
      if (meets) {
        seen = Arrival::of(ptx::load_relaxed_system(meeting.from()));
        if (seen.epoch != arrival.epoch) lost = meeting.peer;
      }
      Outcome outcome = Outcome::arrived;
      if (seen.epoch == arrival.epoch && seen.signature != arrival.signature) {
        outcome = Outcome::disagrees;
        lost = meeting.peer;
      } else if (lost == kMostRanks) {
        return true;
      } else if (looks % kLooksAtOnce == 0) {
        if (meeting.is_broken()) return false;
        const uint64_t now = waiting.now();
        if (begin == 0) begin = now;
        if (now - begin >= meeting.p.timeout) outcome = Outcome::late;
        if (waiting.gives_up()) outcome = Outcome::aborted;
      }
      if (outcome == Outcome::arrived) continue;
      meeting.give_up(lost, outcome, seen);
      return false;
    }
  }

  /// Leaves their places as they were before they came.
  template <class Wanted, class Place>
  CLEAVE_DEVICE static void clear(const Wanted& wanted, const Place& place) {
    CLEAVE_UNROLL
    for (uint32_t r = 0; r < Ranks; ++r) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < Pieces; ++i)
        if (wanted(i, r)) *place(i, r) = nothing();
    }
  }
};

/// By all threads: sends a thread's pieces to all peers, and receives theirs, as all[piece][rank]. Which of them exist
/// is the same on all ranks. `own_place(piece)`: where its own lie, or come to, in elements of `Awaited` bytes. False:
/// the group is broken.
template <uint32_t Awaited, uint32_t Ranks, uint32_t Pieces, class OwnPlace>
CLEAVE_DEVICE bool exchange(const MeetingParams& p, const OwnPlace& own_place, const bool (&exists)[Pieces],
                            PushedVector (&all)[Pieces][Ranks]) {
  PushedVector own[Pieces];
  if constexpr (Awaited == 0) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Pieces; ++i)
      own[i] = load_vector<16>(reinterpret_cast<const char*>(own_place(i)), exists[i]);
  }
  const Meeting meeting(p);
  if (meeting.is_broken()) return false;
  const uint32_t epoch = meeting.arrival.epoch;
  bool met = true;
  if constexpr (Awaited > 0) {
    Coming<AwaitedWords<Awaited>, 1, Pieces> coming;
    const auto wanted = [&](uint32_t i, uint32_t) { return exists[i]; };
    const auto place = [&](uint32_t i, uint32_t) { return own_place(i); };
    met = coming.wait(meeting, false, wanted, place);
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Pieces; ++i) own[i] = coming.value(i, 0);
    if (met) coming.clear(wanted, place);
  }
  if (met) {
#pragma unroll 1
    for (uint32_t step = 1; step < Ranks; ++step) {
      const uint32_t next = p.rank + step, peer = next < Ranks ? next : next - Ranks;
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < Pieces; ++i)
        if (exists[i]) push(pushed_piece(p, peer, epoch, p.rank, i), own[i]);
    }
    if (meeting.has_peer()) ptx::store_relaxed_system(meeting.to(), meeting.arrival.bits());
    Coming<PushedWords, Ranks, Pieces> coming;
    const auto wanted = [&](uint32_t i, uint32_t r) { return r != p.rank && exists[i]; };
    const auto place = [&](uint32_t i, uint32_t r) { return pushed_piece(p, p.rank, epoch, r, i); };
    met = coming.wait(meeting, meeting.has_peer(), wanted, place);
    if (met) {
      CLEAVE_UNROLL
      for (uint32_t i = 0; i < Pieces; ++i) {
        CLEAVE_UNROLL
        for (uint32_t r = 0; r < Ranks; ++r) all[i][r] = r == p.rank ? own[i] : coming.value(i, r);
      }
      coming.clear(wanted, place);
    }
  }
  return meeting.end(met);
}

/// The same where each rank's product stores its partial result in the memory of all: `place(piece, rank)`, here.
template <uint32_t Awaited, uint32_t Ranks, uint32_t Pieces, class Place>
CLEAVE_DEVICE bool receive(const MeetingParams& p, const Place& place, const bool (&exists)[Pieces],
                           PushedVector (&all)[Pieces][Ranks]) {
  const Meeting meeting(p);
  if (meeting.is_broken()) return false;
  if (meeting.has_peer()) ptx::store_relaxed_system(meeting.to(), meeting.arrival.bits());
  Coming<AwaitedWords<Awaited>, Ranks, Pieces> coming;
  const auto wanted = [&](uint32_t i, uint32_t) { return exists[i]; };
  const bool met = coming.wait(meeting, meeting.has_peer(), wanted, place);
  if (met) {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < Pieces; ++i) {
      CLEAVE_UNROLL
      for (uint32_t r = 0; r < Ranks; ++r) all[i][r] = coming.value(i, r);
    }
    coming.clear(wanted, place);
  }
  return meeting.end(met);
}

}  // namespace cleave

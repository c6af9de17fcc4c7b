// A CTA's meeting with those of the same number on the other ranks: each thread tells a peer that this rank has come,
// and waits for that one. What the stream's kernels wrote before it, in peers' memory too, is visible behind it on
// every rank.
//
// It ends, whatever the peers do: after the timeout, or where they are in another call, it leaves a record for the host
// and marks the group as broken, and every later meeting of it ends at once. It never traps, so the process's other
// work goes on.
//
// The launch behind it may begin once its CTAs have met, and not before: while it waits for this one, it has room on
// the GPU that a kernel of another stream may lack, and a peer may be waiting for that kernel.
#pragma once

#include "cleave/peers/meeting_params.h"
#include "cleave/ptx/system.h"

namespace cleave {

/// What wait_for asks of the GPU.
struct DeviceWaiting {
  const GroupRecord* record;

  CLEAVE_DEVICE static uint64_t load(const uint64_t* arrival) { return ptx::load_acquire_system(arrival); }
  CLEAVE_DEVICE static uint64_t now() { return ptx::nanoseconds(); }
  CLEAVE_DEVICE bool gives_up() const { return *static_cast<const volatile uint32_t*>(&record->abort) != 0; }
  CLEAVE_DEVICE static void pause() {}
};

/// As one of the threads that meet sees it, behind grid_dependency_wait. There are at least as many as ranks.
struct Meeting {
  const MeetingParams& p;
  GroupHeader& own;
  const uint32_t number, peer;  // the meeting's, and the thread's peer's
  const Arrival arrival;

  /// By a CTA's threads.
  CLEAVE_DEVICE explicit Meeting(const MeetingParams& params)
      : Meeting(params, params.first + blockIdx.x, threadIdx.x, next(params, params.first + blockIdx.x)) {}

  CLEAVE_DEVICE Meeting(const MeetingParams& params, uint32_t number, uint32_t thread, uint32_t epoch)
      : p(params), own(*params.headers[params.rank]), number(number), peer(thread), arrival{epoch, params.signature} {}

  /// The epoch of the next of that number.
  CLEAVE_DEVICE static uint32_t next(const MeetingParams& params, uint32_t number) {
    return params.headers[params.rank]->epochs[number] + 1;
  }

  CLEAVE_DEVICE bool is_broken() const { return *static_cast<const volatile uint32_t*>(&own.broken) != 0; }
  CLEAVE_DEVICE bool has_peer() const { return peer < p.size && peer != p.rank; }

  /// Where the thread's peer is told, and where it tells.
  CLEAVE_DEVICE uint64_t* to() const { return arrival_of(*p.headers[peer], arrival.epoch, number, p.rank); }
  CLEAVE_DEVICE const uint64_t* from() const { return arrival_of(own, arrival.epoch, number, peer); }

  /// The group is of no use any more, and the host reads why; the first one says it.
  CLEAVE_DEVICE void give_up(uint32_t lost, Outcome outcome, Arrival expected, Arrival seen) const {
    if (atomicExch(&own.broken, 1u) != 0) return;
    p.record->peer = lost;
    p.record->expected = expected;
    p.record->seen = seen;
    __threadfence_system();
    *static_cast<volatile Outcome*>(&p.record->outcome) = outcome;
  }

  /// By one thread, once all have seen the last epoch: the next one may begin.
  CLEAVE_DEVICE void count() const { own.epochs[number] = arrival.epoch; }

  /// By all threads of the CTA: whether all have met.
  CLEAVE_DEVICE bool end(bool met) const {
    const bool all = __syncthreads_and(met);
    if (threadIdx.x == 0) count();
    return all;
  }
};

/// By all threads. False: the group is broken.
CLEAVE_DEVICE bool meet(const MeetingParams& p) {
  const Meeting meeting(p);
  if (meeting.is_broken()) return false;
  Outcome outcome = Outcome::arrived;
  if (meeting.has_peer()) {
    ptx::store_release_system(meeting.to(), meeting.arrival.bits());
    Arrival seen;
    outcome = wait_for(DeviceWaiting{p.record}, meeting.from(), meeting.arrival, p.timeout, seen);
    if (outcome != Outcome::arrived) meeting.give_up(meeting.peer, outcome, meeting.arrival, seen);
  }
  return meeting.end(outcome == Outcome::arrived);
}

}  // namespace cleave

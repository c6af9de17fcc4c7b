// A CTA's meeting with those of the same number on the other ranks: each thread tells a peer that this rank has come,
// and waits for that one. What the stream's kernels wrote before it, in peers' memory too, is visible behind it on
// every rank.
//
// It ends, whatever the peers do: after the timeout, or where they are in another call, it leaves a record for the host
// and marks the group as broken, and every later meeting of it ends at once. It never traps, so the process's other
// work goes on.
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

/// By all threads of the CTA, at least as many as ranks, behind grid_dependency_wait. False: the group is broken.
CLEAVE_DEVICE bool meet(const MeetingParams& p) {
  __shared__ uint32_t first_lost;
  const uint32_t meeting = p.first + blockIdx.x, peer = threadIdx.x;
  GroupHeader& own = *p.headers[p.rank];
  const Arrival arrival{own.epochs[meeting] + 1, p.signature};
  const bool broken = *static_cast<volatile uint32_t*>(&own.broken) != 0;
  if (peer == 0) first_lost = kMostRanks;
  __syncthreads();
  if (broken) return false;
  Outcome outcome = Outcome::arrived;
  Arrival seen;
  if (peer < p.size && peer != p.rank) {
    uint64_t* const to = arrival_of(*p.headers[peer], arrival.epoch, meeting, p.rank);
    ptx::store_release_system(to, arrival.bits());
    const uint64_t* const from = arrival_of(own, arrival.epoch, meeting, peer);
    outcome = wait_for(DeviceWaiting{p.record}, from, arrival, p.timeout, seen);
    if (outcome != Outcome::arrived) atomicMin(&first_lost, peer);
  }
  __syncthreads();
  if (peer == 0) own.epochs[meeting] = arrival.epoch;
  if (outcome != Outcome::arrived && peer == first_lost && atomicExch(&own.broken, 1u) == 0) {
    p.record->peer = peer;
    p.record->expected = arrival;
    p.record->seen = seen;
    __threadfence_system();
    *static_cast<volatile Outcome*>(&p.record->outcome) = outcome;
  }
  return first_lost == kMostRanks;
}

}  // namespace cleave

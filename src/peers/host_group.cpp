#include "peers/host_group.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <thread>

namespace cleave {
namespace {

/// What wait_for asks of the host.
struct HostWaiting {
  const GroupRecord& record;

  static uint64_t load(const uint64_t* arrival) {
    return std::atomic_ref(*const_cast<uint64_t*>(arrival)).load(std::memory_order_acquire);
  }
  static uint64_t now() {
    const auto time = std::chrono::steady_clock::now().time_since_epoch();
    return uint64_t(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
  }
  bool gives_up() const { return *static_cast<const volatile uint32_t*>(&record.abort) != 0; }
  static void pause() { std::this_thread::yield(); }
};

}  // namespace

void HostGroup::gather(const MeetingParams& meeting, size_t offset, size_t bytes, void* out, void*) const {
  meet(meeting);
  for (int r = 0; bytes > 0 && r < size(); ++r) {
    const char* const from = reinterpret_cast<const char*>(meeting.headers[r]) + offset;
    std::memcpy(static_cast<char*>(out) + size_t(r) * bytes, from, bytes);
  }
}

void HostGroup::push(const MeetingParams& meeting, std::span<const Rows> parts, void*) const {
  const auto place_of = [&](uint32_t block, const Rows& part, uint32_t rank) {
    return reinterpret_cast<char*>(meeting.headers[block]) + reserved(size()) + part.place + rank * part.share;
  };
  for (const Rows& part : parts) {
    for (uint32_t peer = 0; part.bytes > 0 && peer < meeting.size; ++peer)
      std::memcpy(place_of(peer, part, rank()), part.own, part.bytes);
  }
  meet(meeting);
  for (const Rows& part : parts) {
    if (part.out != nullptr && part.share > 0)
      std::memcpy(part.out, place_of(rank(), part, 0), part.share * size_t(size()));
  }
}

void HostGroup::meet(const MeetingParams& p) const {
  GroupHeader& own = *p.headers[p.rank];
  const Arrival arrival{own.epochs[p.first] + 1, p.signature};
  for (uint32_t peer = 0; peer < p.size; ++peer) {
    uint64_t& to = *arrival_of(*p.headers[peer], arrival.epoch, p.first, p.rank);
    if (peer != p.rank) std::atomic_ref(to).store(arrival.bits(), std::memory_order_release);
  }
  own.epochs[p.first] = arrival.epoch;
  for (uint32_t peer = 0; peer < p.size; ++peer) {
    if (peer == p.rank) continue;
    Arrival seen;
    const uint64_t* const from = arrival_of(own, arrival.epoch, p.first, peer);
    const Outcome outcome = wait_for(HostWaiting{record_}, from, arrival, p.timeout, seen);
    if (outcome == Outcome::arrived) continue;
    record_.peer = peer;
    record_.expected = arrival;
    record_.seen = seen;
    record_.outcome = outcome;
    check();
  }
}

void HostGroup::say_reset(uint64_t word, int to) const {
  std::atomic_ref(header(to).resets[rank()]).store(word, std::memory_order_release);
}

std::array<uint64_t, kMostRanks> HostGroup::read_resets() const {
  std::array<uint64_t, kMostRanks> words;
  for (size_t r = 0; r < kMostRanks; ++r)
    words[r] = std::atomic_ref(header(rank()).resets[r]).load(std::memory_order_acquire);
  return words;
}

void HostGroup::clear() const {
  char* const block = reinterpret_cast<char*>(&header(rank()));
  std::memset(block, 0, offsetof(GroupHeader, resets));
  std::memset(block + kGroupHeaderBytes, 0, reserved(size()) - kGroupHeaderBytes);
  header(rank()).broken = 1;
}

void HostGroup::mend() const {
  header(rank()).broken = 0;
}

}  // namespace cleave

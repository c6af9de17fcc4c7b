#include "peers/mapped_group.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/refuse.h"
#include "cleave/problem.h"
#include "peers/device_group.h"
#include "peers/gather_launch.h"
#include "peers/host_group.h"
#include "peers/push_launch.h"

namespace cleave {

double peer_timeout() {
  const char* const given = std::getenv("CLEAVE_PEER_TIMEOUT");
  if (given == nullptr || *given == '\0') return 60;
  char* end = nullptr;
  const double seconds = std::strtod(given, &end);
  if (*end != '\0' || !(seconds > 0) || !(seconds < 1e9))
    refuse_value("CLEAVE_PEER_TIMEOUT is \"{}\"; it must be a number of seconds above 0", given);
  return seconds;
}

MappedGroup::MappedGroup(int rank, Memory memory)
    : rank_(rank), memory_(std::move(memory)), timeout_(uint64_t(peer_timeout() * 1e9)) {}

void* MappedGroup::staging(int rank) const {
  if (rank < 0 || rank >= size()) refuse_value("rank is {}; the group has {} ranks", rank, size());
  return static_cast<char*>(memory_.addresses[size_t(rank)]) + reserved(size());
}

void MappedGroup::barrier(std::string_view call, void* stream, bool beside) const {
  MeetingParams params = meeting(call);
  if (beside) params.first = kMostCtas;
  gather(params, 0, 0, nullptr, stream);
}

void MappedGroup::gather(const void* own, size_t bytes, void* out, std::string_view call, void* stream) const {
  const auto begin = reinterpret_cast<uintptr_t>(staging(rank_)), place = reinterpret_cast<uintptr_t>(own);
  if (place < begin || place - begin > this->bytes() || bytes > this->bytes() - (place - begin))
    refuse_value("own is {}, of {} bytes; they must be in this rank's staging", fmt::ptr(own), bytes);
  if (const size_t piece = gather_config(bytes, out).bytes, most = (size_t(1) << 31) / size_t(size()) * piece;
      bytes >= most)
    refuse_value("bytes is {}; with {} ranks and such an out they must be fewer than {}", bytes, size(), most);
  const size_t offset = reserved(size()) + (place - begin);
  if (offset % 16 != 0) refuse_value("own is {}; it must be a multiple of 16 bytes", fmt::ptr(own));
  gather(meeting(call), offset, bytes, out, stream);
}

void MappedGroup::push(std::span<const Rows> parts, std::string_view call, void* stream) const {
  if (parts.empty() || parts.size() > kPushedParts)
    refuse_value("parts are {}; push() takes 1 to {}", parts.size(), kPushedParts);
  for (const Rows& part : parts) {
    if (part.place % 16 != 0 || part.place > bytes() || part.share > (bytes() - part.place) / size_t(size()))
      refuse_value("a place of {} ranks' {} bytes begins at {}; it must be in the staging, of {}, at a multiple of 16",
                   size(), part.share, part.place, bytes());
    if (part.bytes > part.share) refuse_value("a rank has {} bytes of a share of {}", part.bytes, part.share);
    if ((part.out == nullptr) != (parts[0].out == nullptr)) refuse_value("one part has an out and another has none");
  }
  push(meeting(call), parts, stream);
}

MeetingParams MappedGroup::meeting(std::string_view call) const {
  check();
  MeetingParams params{.record = &record(),
                       .timeout = timeout_,
                       .rank = uint32_t(rank_),
                       .size = uint32_t(size()),
                       .signature = signature_of(call)};
  for (int r = 0; r < size(); ++r) params.headers[r] = static_cast<GroupHeader*>(memory_.addresses[size_t(r)]);
  return params;
}

void MappedGroup::abort() const {
  std::atomic_ref(record().abort).fetch_add(1);
}

uint32_t MappedGroup::aborts() const {
  return *static_cast<const volatile uint32_t*>(&record().abort);
}

std::string MappedGroup::problem() const {
  const GroupRecord& found = record();
  const Outcome outcome = *static_cast<const volatile Outcome*>(&found.outcome);
  if (outcome == Outcome::arrived)  // as before each call, which makes no text
    return aborts() != 0 ? "the group was aborted" : "";
  const std::string call = call_of(found.expected.signature);
  switch (outcome) {
    case Outcome::arrived:
      break;
    case Outcome::late:
      return fmt::format(
          "rank {} waited {} s for rank {} in {}, which did not come: it has died, is late, or makes another call "
          "(CLEAVE_PEER_TIMEOUT, in seconds, is how long a rank waits)",
          rank_, double(timeout_) * 1e-9, found.peer, call);
    case Outcome::disagrees:
      return fmt::format(
          "rank {} calls {} where rank {} calls {}; all ranks must make the same calls in the same order", rank_, call,
          found.peer, call_of(found.seen.signature));
    case Outcome::aborted:
      return fmt::format("the group was aborted while rank {} waited for rank {} in {}", rank_, found.peer, call);
  }
  return "";
}

namespace {

/// Eight bytes at once: byte by byte it would take a fifth of a microsecond in every call.
uint32_t hash_of(std::string_view text) {
  uint64_t hash = text.size();
  for (; !text.empty(); text.remove_prefix(std::min<size_t>(text.size(), 8))) {
    uint64_t word = 0;
    std::memcpy(&word, text.data(), std::min<size_t>(text.size(), 8));
    hash = (hash ^ word) * 0xff51afd7ed558ccdull;
    hash ^= hash >> 32;
  }
  return uint32_t(hash);
}

}  // namespace

uint32_t MappedGroup::signature_of(std::string_view call) const {
  const uint32_t hash = hash_of(call);
  constexpr size_t kMostCalls = 4096;
  const std::lock_guard lock(mutex_);
  if (calls_.size() < kMostCalls && !calls_.contains(hash)) calls_.emplace(hash, call);
  return hash;
}

std::string MappedGroup::call_of(uint32_t signature) const {
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(signature);
  return found != calls_.end() ? found->second : fmt::format("what rank {} has never called", rank_);
}

void Group::check() const {
  if (const std::string found = problem(); !found.empty()) {
    refuse(
        ErrorCode::peer,
        "{}. The group is of no use until all ranks reset() it; if one is lost, make another of those that are left.",
        found);
  }
}

std::unique_ptr<MappedGroup> make_group(int rank, int device, MappedGroup::Memory memory) {
  if (device == kCpu) return std::make_unique<HostGroup>(rank, std::move(memory));
  return std::make_unique<DeviceGroup>(rank, device, std::move(memory));
}

}  // namespace cleave

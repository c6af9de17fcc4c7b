// Ranks that see each other's memory: the GPUs of one host, each a process or a thread, or threads and processes of the
// host's own.
//
//   auto group = cleave::Group::share(rank, size, device, bytes, all_gather);  // collective
//   plan->run({.a = a, .b = b, .d = group->staging(rank)}, stream);            // a partial result
//   group->barrier("product of layer 3", stream);                              // the same call on every rank
//   ... kernels on `stream` may read what all ranks have written to any staging
//
// A barrier orders the work of the ranks' streams and nothing else; no call here waits for a GPU but share(). What one
// rank wrote before it, to its own staging or to others', every rank may read behind it, up to the next barrier but
// one: whoever writes the same place again does so behind a later barrier.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cleave/error.h"

namespace cleave {

struct MeetingParams;

/// Immutable but for what its barriers count; thread-safe, but that all ranks make the same calls in the same order, on
/// one stream or on streams that are ordered. Safe in CUDA graphs: epochs are counted on the device, so replays go on
/// where the last one ended. All ranks capture, and replay as often.
class CLEAVE_API Group {
 public:
  /// Every rank's text, by rank: what share() needs to be carried between the ranks, by MPI, a store or a socket.
  using AllGather = std::function<std::vector<std::string>(const std::string& own)>;

  /// Memory of its own for every rank, `bytes` for staging each, on CUDA device `device` or in the host's memory
  /// (kCpu). Every rank of the group calls it, on one host; between processes a file descriptor goes through a socket
  /// (no CUDA IPC, no privileges). Where a rank cannot take part, all ranks throw the same.
  ///
  /// Throws Error(invalid_argument) for a rank, a size or bytes that cannot be, Error(unsupported) where ranks are on
  /// several hosts or devices cannot read each other's memory, Error(driver) for a failed call.
  static std::shared_ptr<Group> share(int rank, int size, int device, size_t bytes, const AllGather& all_gather);

  /// The same of memory that is there, zeroed, and mapped here by whoever made it: `blocks[r]` is rank r's, of
  /// `block_bytes`, aligned to 16 bytes. Its first reserved(size) bytes are the group's.
  static std::shared_ptr<Group> from_pointers(int rank, int device, std::span<void* const> blocks, size_t block_bytes);

  /// share() of a communicator's ranks, on its device: `comm` is an ncclComm_t, which carries what share() asks, on the
  /// default stream, and is not needed afterwards. libnccl.so.2 is the one that is loaded, of any version 2.
  ///
  /// Throws as share(), Error(unsupported) where there is no libnccl, Error(driver) for what it says.
  static std::shared_ptr<Group> from_nccl(void* comm, size_t bytes);

  /// 128 KiB, and from 4 to 32 MiB for what `size` ranks push to each other (fold.h).
  static size_t reserved(int size);

  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int device() const = 0;
  /// The size of each rank's staging.
  virtual size_t bytes() const = 0;
  /// A rank's staging, where it is mapped here.
  virtual void* staging(int rank) const = 0;

  /// Enqueues a barrier (on the CPU: waits). `call` is what the ranks are about to do: where they say different things,
  /// the group breaks. Throws Error(peer) where it is broken already. `beside`: it is one of another sequence of
  /// barriers, on a stream of its own, which goes on beside the rest.
  virtual void barrier(std::string_view call, void* stream, bool beside = false) const = 0;

  /// Enqueues a barrier, and behind it copies what is at one place of every rank's staging, `own` on this one, to
  /// `out`, rank after rank: fewer than 2^31 pieces of all, which have 16 bytes where `bytes` and `out` are multiples
  /// of that, else 4 or 1. Throws as barrier(), and Error(invalid_argument) for another place.
  virtual void gather(const void* own, size_t bytes, void* out, std::string_view call, void* stream) const = 0;

  /// What each rank has at one place of every rank's staging, rank after rank.
  struct Rows {
    const void* own = nullptr;
    size_t bytes = 0;     // of `own`
    size_t share = 0;     // from one rank's to the next one's: the same on all ranks, and no rank has more
    size_t place = 0;     // where those of rank 0 begin in the staging; a multiple of 16
    void* out = nullptr;  // what gets a copy of all, `share` of each rank; nullptr: nobody needs one
  };

  /// Enqueues a copy of each part's `own` to every rank's staging, this one's too, and a barrier behind it: one trip
  /// between GPUs, where gather() takes two. One or two parts, all with an `out` or none. As all that ranks write, a
  /// place is written again behind a later barrier. Throws as barrier(), and Error(invalid_argument) for another place.
  virtual void push(std::span<const Rows> parts, std::string_view call, void* stream) const = 0;

  /// What a launch that begins with a barrier of its own needs (fold.h). Throws as barrier().
  virtual MeetingParams meeting(std::string_view call) const = 0;

  /// Ends all waiting, from any thread, and breaks the group.
  virtual void abort() const = 0;

  /// Makes a broken group whole again, while all of its ranks live: every one calls it, and it returns where all have,
  /// whatever each had called before. It waits for all that the device has been given, and for the other ranks twice
  /// CLEAVE_PEER_TIMEOUT, as they may wait as long in their last call. Epochs begin anew; staging and captured graphs
  /// stay as they are. Not while a stream is capturing, nor beside other calls of this rank's.
  ///
  /// Throws Error(peer) where a rank does not come, as it has died, is late or makes another call, or abort() ends the
  /// waiting: the group stays broken, and all may call it again.
  virtual void reset() const = 0;

  /// Empty, or what broke the group: a peer that did not come within CLEAVE_PEER_TIMEOUT (seconds, 60 by default), that
  /// was in another call, or abort(). A broken group's barriers end at once, in graphs that are replayed, too; reset()
  /// by all ranks repairs it. Does not wait: a barrier that is still running has said nothing yet.
  virtual std::string problem() const = 0;

  /// Throws Error(peer) with problem(), if there is one.
  void check() const;
};

}  // namespace cleave

// Memory by which the blocks of a launch wait for each other, the counters: zero before the launch,
// which leaves it zero. So it is zeroed once and then kept: a piece for all launches on a stream,
// since those follow each other, and one for all that a stream adds to a CUDA graph. Graphs hold
// addresses and may be replayed at any time: nothing is freed.
//
// The first streams also keep room for a few partial sums. Launches with few are short, and to ask
// PyTorch's allocator each time would be a good part of what they cost the host.
#pragma once

#include <algorithm>
#include <compare>
#include <map>
#include <mutex>

#include "emitted/operation.h"

#include "driver.h"

namespace emitted::operation {

/// The workspaces of one GPU, whose context is current in calls.
class Workspaces {
 public:
  /// For the next launch on `stream`: so many bytes of counters, and of partial sums or null. Many
  /// are not kept, nor those of graphs, whose pools have them.
  Workspace get(CUstream stream, size_t counters, size_t partials) {
    const Owner owner = owner_of(stream);
    const std::lock_guard lock(mutex_);
    Kept& kept = kept_[owner];
    Workspace workspace{.counters = grown(kept.counters, counters)};
    if (owner.capture == 0 && partials <= kKeptPartials) {
      if (kept.partials == 0 && streams_with_partials_ < kMostStreams) {
        kept.partials = new_partials();
        streams_with_partials_ += kept.partials != 0;
      }
      workspace.partials = reinterpret_cast<void*>(kept.partials);
    }
    return workspace;
  }

 private:
  static constexpr size_t kKeptPartials = size_t(1) << 20;
  static constexpr int kMostStreams = 64;  // that keep them

  /// Launches that follow each other.
  struct Owner {
    uint64_t stream, capture;  // no capture: 0

    friend auto operator<=>(const Owner&, const Owner&) = default;
  };

  struct Piece {
    CUdeviceptr data = 0;
    size_t size = 0;
  };
  struct Kept {
    Piece counters;
    CUdeviceptr partials = 0;
  };

  static Owner owner_of(CUstream stream) {
    // A stream that is captured may not be asked for its number. It outlives the capture, so its
    // handle will do.
    if (const uint64_t capture = capture_point(stream).capture; capture != 0)
      return {reinterpret_cast<uintptr_t>(stream), capture};
    // The driver gives handles of destroyed streams to new ones, while the old one's work may still
    // run, and every thread's default stream has the same handle.
    unsigned long long number = 0;
    DRIVER_CALL(cuStreamGetId, stream, &number);
    return {number, 0};
  }

  /// At least `bytes`.
  static void* grown(Piece& piece, size_t bytes) {
    if (piece.size < bytes) piece = new_piece(std::max(bytes, 2 * piece.size));
    return reinterpret_cast<void*>(piece.data);
  }

  /// Not zeroed. 0 if PyTorch's cache holds the rest of the GPU's memory, and has to bring them.
  static CUdeviceptr new_partials() {
    const RelaxedCapture relaxed;
    CUdeviceptr partials = 0;
    const CUresult result = DRIVER(cuMemAlloc)(&partials, kKeptPartials);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) return 0;
    check(result, "cuMemAlloc");
    return partials;
  }

  /// Zeroed on a stream of its own, and waited for: no part of a capture.
  static Piece new_piece(size_t size) {
    const RelaxedCapture relaxed;
    Piece piece{.size = size};
    CUstream zeroing = nullptr;
    DRIVER_CALL(cuMemAlloc, &piece.data, size);
    DRIVER_CALL(cuStreamCreate, &zeroing, CU_STREAM_NON_BLOCKING);
    DRIVER_CALL(cuMemsetD8Async, piece.data, 0, size, zeroing);
    DRIVER_CALL(cuStreamSynchronize, zeroing);
    DRIVER_CALL(cuStreamDestroy, zeroing);
    return piece;
  }

  std::mutex mutex_;
  std::map<Owner, Kept> kept_;
  int streams_with_partials_ = 0;
};

}  // namespace emitted::operation

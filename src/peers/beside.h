// A stream beside the one that computes, for copies between GPUs and what waits for them.
#pragma once

#include <cstddef>

#include "cleave/core/api.h"

namespace cleave {

struct SideStream;

/// That of one call, on a stream of which no other stream's calls have a part. When it ends, the one that computes goes
/// on behind all that was enqueued beside since follow(). On the CPU everything is done at once, and nothing is beside.
class CLEAVE_TOOLS Beside {
 public:
  static constexpr size_t kMarks = 2;

  /// `computing`: the call's stream, on a CUDA device or kCpu. Throws Error(driver), as all of it does, and
  /// Error(capture) for a broken capture.
  Beside(int device, void* computing);
  ~Beside();
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  /// For launches.
  void* stream() const;

  /// What is enqueued beside from now on begins behind all that the call's stream has been given so far.
  void follow();
  void copy(void* to, const void* from, size_t bytes);

  /// Remembers, by one of kMarks numbers, what has been enqueued beside so far.
  void mark(size_t number);
  /// What the call's stream is given from now on begins behind that.
  void await(size_t number);

 private:
  int device_;
  void* computing_;
  SideStream* side_ = nullptr;  // nullptr on the CPU
  bool used_ = false;
};

}  // namespace cleave

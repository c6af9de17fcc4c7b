// Which device a thread's driver calls go to, and how they behave while a stream is capturing.
#pragma once

#include <cuda.h>

#include "cleave/core/api.h"
#include "launch/captured_chain.h"

namespace cleave {

/// The context that the CUDA runtime, and so PyTorch, uses on `device`. Retained once per process,
/// never released.
CUcontext primary_context(int device);

/// Makes `device` current in this thread for a scope, whatever was, or if nothing was. Nearly free
/// if it is already.
class CLEAVE_TOOLS ContextGuard {
 public:
  explicit ContextGuard(int device);
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  bool pushed_ = false;
};

/// Lets this thread allocate and load modules for a scope although some thread is capturing a CUDA
/// graph: by default such calls would end the capture with an error. They are not recorded, they
/// take effect at once.
class RelaxedCapture {
 public:
  RelaxedCapture();
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

/// The capture that `stream` takes part in, or 0: unique for the life of the process. Needs a
/// current context. Throws Error(capture) for a broken capture, and for the default stream while
/// another stream is capturing.
CLEAVE_TOOLS unsigned long long capture_id(CUstream stream);

/// Where the capture of `stream` is; nowhere also if it is broken, which the next call that matters says.
CapturePoint capture_point(CUstream stream);

inline bool is_capturing(CUstream stream) {
  return capture_id(stream) != 0;
}

/// Throws Error(invalid_argument) if `stream` belongs to another device. The driver finds the same
/// mistake at launch; this says it better, and is called once that has happened.
void check_stream(CUstream stream, int device);

}  // namespace cleave

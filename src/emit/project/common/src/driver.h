// The CUDA driver: its functions, their errors, and the context that calls go to.
#pragma once

#include <cuda.h>

#include <stdexcept>
#include <string>

#include "launch/captured_chain.h"

namespace emitted::operation {

/// What libcuda.so.1 has by that name. Throws std::runtime_error without a driver, or an old one.
void* find_in_driver(const char* name);

// A function of the driver, found at its first use, so that neither building nor loading this needs a
// driver. With LINK_CUDA_DRIVER the linker finds it: pass it -lcuda. Some names are macros of cuda.h
// that add the version: cuMemAlloc is cuMemAlloc_v2.
#if defined(LINK_CUDA_DRIVER)
#define DRIVER(name) (::name)
#else
#define DRIVER_TEXT(name) #name
#define DRIVER(name)                                                                                     \
  ([] {                                                                                                  \
    static const auto function = reinterpret_cast<decltype(&::name)>(find_in_driver(DRIVER_TEXT(name))); \
    return function;                                                                                     \
  }())
#endif

/// Throws std::runtime_error for anything but success.
inline void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* reason = nullptr;
  DRIVER(cuGetErrorString)(result, &reason);
  throw std::runtime_error(std::string(call) + " failed: " + (reason ? reason : "unknown error"));
}

/// A call of one that throws unless it succeeds.
#define DRIVER_CALL(name, ...) check(DRIVER(name)(__VA_ARGS__), #name)

/// Where the capture of `stream` is.
inline cleave::CapturePoint capture_point(CUstream stream) {
  if (stream == nullptr) return {};  // the default stream is never captured
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t number = 0;
  const CUgraphNode* nodes = nullptr;
  size_t count = 0;
#if CUDA_VERSION >= 13000
  DRIVER_CALL(cuStreamGetCaptureInfo, stream, &status, &number, nullptr, &nodes, nullptr, &count);
#else
  DRIVER_CALL(cuStreamGetCaptureInfo, stream, &status, &number, nullptr, &nodes, &count);
#endif
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return {};
  return {number, count == 1 ? nodes[0] : nullptr};
}

/// Makes a context current for a scope, whatever was.
class ContextGuard {
 public:
  explicit ContextGuard(CUcontext context) {
    CUcontext current = nullptr;
    DRIVER_CALL(cuCtxGetCurrent, &current);
    if (current == context) return;
    DRIVER_CALL(cuCtxPushCurrent, context);
    pushed_ = true;
  }
  ~ContextGuard() {
    CUcontext ignored = nullptr;
    if (pushed_) DRIVER(cuCtxPopCurrent)(&ignored);
  }
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  bool pushed_ = false;
};

/// Lets this thread load kernels for a scope although a stream is being captured: the calls are not
/// recorded.
class RelaxedCapture {
 public:
  RelaxedCapture() { DRIVER(cuThreadExchangeStreamCaptureMode)(&mode_); }
  ~RelaxedCapture() { DRIVER(cuThreadExchangeStreamCaptureMode)(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace emitted::operation

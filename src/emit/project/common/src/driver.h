// The CUDA driver: its functions, their errors, and the context that calls go to.
#pragma once

#include <cuda.h>

#include <stdexcept>
#include <string>

namespace emitted::operation {

/// What libcuda.so.1 has by that name. Throws std::runtime_error without a driver, or an old one.
void* find_in_driver(const char* name);

// Functions are found at the first use, so that neither building nor loading this needs a driver.
// With LINK_CUDA_DRIVER the linker finds them: pass it -lcuda. Some names are macros of cuda.h that
// add the version: cuMemAlloc is cuMemAlloc_v2.
#if defined(LINK_CUDA_DRIVER)
#define DRIVER_FUNCTION(name) decltype(&::name) name = &::name
#else
#define DRIVER_TEXT(name) #name
#define DRIVER_FUNCTION(name) \
  decltype(&::name) name = reinterpret_cast<decltype(&::name)>(find_in_driver(DRIVER_TEXT(name)))
#endif

struct Driver {
  DRIVER_FUNCTION(cuCtxGetCurrent);
  DRIVER_FUNCTION(cuCtxPopCurrent);
  DRIVER_FUNCTION(cuCtxPushCurrent);
  DRIVER_FUNCTION(cuCtxSetCurrent);
  DRIVER_FUNCTION(cuCtxSynchronize);
  DRIVER_FUNCTION(cuDeviceGet);
  DRIVER_FUNCTION(cuDeviceGetAttribute);
  DRIVER_FUNCTION(cuDevicePrimaryCtxRelease);
  DRIVER_FUNCTION(cuDevicePrimaryCtxRetain);
  DRIVER_FUNCTION(cuDriverGetVersion);
  DRIVER_FUNCTION(cuFuncGetAttribute);
  DRIVER_FUNCTION(cuFuncSetAttribute);
  DRIVER_FUNCTION(cuGetErrorString);
  DRIVER_FUNCTION(cuInit);
  DRIVER_FUNCTION(cuLaunchKernelEx);
  DRIVER_FUNCTION(cuMemAlloc);
  DRIVER_FUNCTION(cuMemFree);
  DRIVER_FUNCTION(cuMemcpyDtoH);
  DRIVER_FUNCTION(cuMemcpyHtoD);
  DRIVER_FUNCTION(cuMemsetD8Async);
  DRIVER_FUNCTION(cuModuleGetFunction);
  DRIVER_FUNCTION(cuModuleLoadData);
  DRIVER_FUNCTION(cuModuleUnload);
  DRIVER_FUNCTION(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  DRIVER_FUNCTION(cuOccupancyMaxActiveClusters);
  DRIVER_FUNCTION(cuStreamCreate);
  DRIVER_FUNCTION(cuStreamDestroy);
  DRIVER_FUNCTION(cuStreamGetCaptureInfo);
  DRIVER_FUNCTION(cuStreamGetId);
  DRIVER_FUNCTION(cuStreamSynchronize);
  DRIVER_FUNCTION(cuTensorMapEncodeIm2col);
  DRIVER_FUNCTION(cuTensorMapEncodeTiled);
  DRIVER_FUNCTION(cuTensorMapReplaceAddress);
  DRIVER_FUNCTION(cuThreadExchangeStreamCaptureMode);
};

/// Throws as find_in_driver does.
inline const Driver& driver() {
  static const Driver functions{};
  return functions;
}

/// Throws std::runtime_error for anything but success.
inline void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* reason = nullptr;
  driver().cuGetErrorString(result, &reason);
  throw std::runtime_error(std::string(call) + " failed: " + (reason ? reason : "unknown error"));
}

/// Makes a context current for a scope, whatever was.
class ContextGuard {
 public:
  explicit ContextGuard(CUcontext context) {
    CUcontext current = nullptr;
    check(driver().cuCtxGetCurrent(&current), "cuCtxGetCurrent");
    if (current == context) return;
    check(driver().cuCtxPushCurrent(context), "cuCtxPushCurrent");
    pushed_ = true;
  }
  ~ContextGuard() {
    CUcontext ignored = nullptr;
    if (pushed_) driver().cuCtxPopCurrent(&ignored);
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
  RelaxedCapture() { driver().cuThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { driver().cuThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

}  // namespace emitted::operation

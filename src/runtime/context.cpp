#include "runtime/context.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "base/refuse.h"
#include "cleave/device.h"
#include "runtime/driver.h"

namespace cleave {
namespace {

constexpr int max_devices = 64;

// Zero until first asked for. Threads that race to fill an entry retain the same context twice,
// which does no harm.
std::array<std::atomic<CUcontext>, max_devices> primary_contexts;

}  // namespace

CUcontext primary_context(int device) {
  if (device < 0 || device >= std::min(device_count(), max_devices)) {
    driver();  // no driver at all is the better thing to say
    refuse_value("device is {}; there are {} CUDA devices", device, device_count());
  }
  auto& slot = primary_contexts[size_t(device)];
  CUcontext context = slot.load(std::memory_order_acquire);
  if (context) return context;
  CUdevice handle = 0;
  check(driver().device_get(&handle, device), "cuDeviceGet");
  check(driver().device_primary_ctx_retain(&context, handle), "cuDevicePrimaryCtxRetain");
  slot.store(context, std::memory_order_release);
  return context;
}

ContextGuard::ContextGuard(int device) {
  const CUcontext wanted = primary_context(device);
  CUcontext current = nullptr;
  check(driver().ctx_get_current(&current), "cuCtxGetCurrent");
  if (current == wanted) return;
  check(driver().ctx_push_current(wanted), "cuCtxPushCurrent");
  pushed_ = true;
}

ContextGuard::~ContextGuard() {
  CUcontext ignored = nullptr;
  if (pushed_) driver().ctx_pop_current(&ignored);
}

RelaxedCapture::RelaxedCapture() {
  check(driver().thread_exchange_stream_capture_mode(&mode_), "cuThreadExchangeStreamCaptureMode");
}

RelaxedCapture::~RelaxedCapture() {
  driver().thread_exchange_stream_capture_mode(&mode_);
}

unsigned long long capture_id(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  check(driver().stream_get_capture_info(stream, &status, &id, nullptr, nullptr, nullptr), "cuStreamGetCaptureInfo");
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return 0;
  if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED) {
    refuse(ErrorCode::capture, "The stream's capture was broken by an earlier error; end it and start a new one.");
  }
  return id;
}

CapturePoint capture_point(CUstream stream) {
  if (stream == nullptr || stream == CU_STREAM_LEGACY) return {};  // never captured
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  const CUgraphNode* nodes = nullptr;
  size_t count = 0;
  const CUresult result = driver().stream_get_capture_info(stream, &status, &id, nullptr, &nodes, &count);
  if (result != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return {};
  return {id, count == 1 ? nodes[0] : nullptr};
}

void check_stream(CUstream stream, int device) {
  // Handles of default streams belong to whichever device is current.
  if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return;
  CUcontext context = nullptr;
  CUdevice owner = 0;
  if (driver().stream_get_ctx(stream, &context) != CUDA_SUCCESS) return;
  if (driver().ctx_push_current(context) != CUDA_SUCCESS) return;
  const bool known = driver().ctx_get_device(&owner) == CUDA_SUCCESS;
  driver().ctx_pop_current(&context);
  if (known && owner != device) {
    refuse_value(
        "stream belongs to device {}, the plan to device {}; pass a stream of the device that holds the matrices",
        int(owner), device);
  }
}

}  // namespace cleave

#include "peers/beside.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "cleave/error.h"
#include "cleave/problem.h"
#include "process/fork.h"
#include "runtime/context.h"
#include "runtime/copy.h"
#include "runtime/driver.h"

namespace cleave {

/// With its events. Each stream that computes has its own, for ever, since nothing tells that it is gone: work of two
/// that waits for peers must not wait for the other's.
struct SideStream {
  int device = 0;
  uint64_t computing = 0;  // its number, which no other stream has in the life of the process
  CUstream stream = nullptr;
  CUevent order = nullptr;  // a stream waits for what was recorded last, so one serves all that wait at once
  std::array<CUevent, Beside::kMarks> marks = {};
};

namespace {

constinit ForkMutex mutex;
constinit Lazy<std::vector<SideStream*>> idle;  // those that no call has

CUstream cuda(void* stream) {
  return static_cast<CUstream>(stream);
}

/// Whether it takes part in that capture, or, for 0, in none: one stays in until the capture ends.
bool is_in(CUstream stream, unsigned long long capture) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
  check(driver().stream_get_capture_info(stream, &status, &id, nullptr, nullptr, nullptr), "cuStreamGetCaptureInfo");
  if (status == CU_STREAM_CAPTURE_STATUS_NONE) return capture == 0;
  return status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id == capture;
}

SideStream* new_side_stream(int device, uint64_t computing) {
  const RelaxedCapture relaxed;
  auto made = std::make_unique<SideStream>(SideStream{.device = device, .computing = computing});
  check(driver().stream_create(&made->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  check(driver().event_create(&made->order, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  for (CUevent& mark : made->marks) check(driver().event_create(&mark, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  return made.release();
}

SideStream* take(int device, CUstream computing) {
  const unsigned long long capture = capture_id(computing);
  unsigned long long number = 0;
  check(driver().stream_get_id(computing, &number), "cuStreamGetId");
  {
    const std::lock_guard lock(mutex);
    std::vector<SideStream*>& streams = idle.get();
    const auto fits = [&](const SideStream* x) {
      return x->device == device && x->computing == number && (is_in(x->stream, capture) || is_in(x->stream, 0));
    };
    if (const auto found = std::ranges::find_if(streams, fits); found != streams.end()) {
      SideStream* const side = *found;
      streams.erase(found);
      return side;
    }
  }
  return new_side_stream(device, number);
}

void give_back(SideStream* side) {
  const std::lock_guard lock(mutex);
  idle.get().push_back(side);
}

/// What `later` is given from now on begins behind all that `first` has been given.
CUresult put_behind(CUstream later, CUstream first, CUevent event) {
  const CUresult recorded = driver().event_record(event, first);
  return recorded == CUDA_SUCCESS ? driver().stream_wait_event(later, event, 0) : recorded;
}

}  // namespace

Beside::Beside(int device, void* computing) : device_(device), computing_(computing) {
  if (device == kCpu) return;
  const ContextGuard context(device);
  side_ = take(device, cuda(computing));
}

Beside::~Beside() {
  if (side_ == nullptr) return;
  try {
    const ContextGuard context(device_);
    if (used_) put_behind(cuda(computing_), side_->stream, side_->order);  // what breaks it, the next launch says
    give_back(side_);
  } catch (const Error&) {
    // The driver is gone, and the stream with it.
  }
}

void* Beside::stream() const {
  return side_ == nullptr ? computing_ : side_->stream;
}

void Beside::follow() {
  if (side_ == nullptr) return;
  const ContextGuard context(device_);
  used_ = true;
  check(put_behind(side_->stream, cuda(computing_), side_->order), "what orders two streams");
}

void Beside::copy(void* to, const void* from, size_t bytes) {
  enqueue_copy(device_, to, from, bytes, stream());
}

void Beside::mark(size_t number) {
  if (side_ == nullptr) return;
  const ContextGuard context(device_);
  check(driver().event_record(side_->marks[number], side_->stream), "cuEventRecord");
}

void Beside::await(size_t number) {
  if (side_ == nullptr) return;
  const ContextGuard context(device_);
  check(driver().stream_wait_event(cuda(computing_), side_->marks[number], 0), "cuStreamWaitEvent");
}

}  // namespace cleave

#include "peers/beside.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <mutex>
#include <vector>

#include "cleave/error.h"
#include "cleave/problem.h"
#include "process/fork.h"
#include "runtime/context.h"
#include "runtime/copy.h"
#include "runtime/driver.h"
#include "runtime/ordered_work.h"

namespace cleave {

/// With its events. Each stream that computes has its own, for ever, since nothing tells that it is gone: work of two
/// that waits for peers must not wait for the other's. Those of captures go from one that has ended to the next.
struct SideStream {
  OrderedWork serves;  // the latest that it was beside
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

SideStream* new_side_stream(const OrderedWork& work) {
  const RelaxedCapture relaxed;
  auto made = std::make_unique<SideStream>(SideStream{.serves = work});
  check(driver().stream_create(&made->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  check(driver().event_create(&made->order, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  for (CUevent& mark : made->marks) check(driver().event_create(&mark, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  return made.release();
}

/// Whether it may be lent to `work`: it served it before, or a capture that has ended.
bool fits(const SideStream& side, const OrderedWork& work) {
  if (side.serves == work) return is_in(side.stream, work.capture) || is_in(side.stream, 0);
  const bool both_captured = side.serves.capture != 0 && work.capture != 0;
  return both_captured && side.serves.device == work.device && side.serves.capture != work.capture &&
         is_in(side.stream, 0);
}

SideStream* take(const OrderedWork& work) {
  {
    const std::lock_guard lock(mutex);
    std::vector<SideStream*>& streams = idle.get();
    // The latest given back first: its own, if it has one.
    const auto found = std::ranges::find_if(streams.rbegin(), streams.rend(), [&](auto* x) { return fits(*x, work); });
    if (found != streams.rend()) {
      SideStream* const side = *found;
      streams.erase(std::next(found).base());
      side->serves = work;
      return side;
    }
  }
  return new_side_stream(work);
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
  side_ = take(ordered_work(device, cuda(computing)));
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

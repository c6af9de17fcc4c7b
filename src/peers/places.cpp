#include "peers/places.h"

#include <cstring>
#include <utility>

#include "cleave/problem.h"
#include "runtime/context.h"
#include "runtime/driver.h"

namespace cleave {
namespace {

constexpr size_t kAlignment = 256;

unsigned long long capture_of(int device, void* stream) {
  if (device == kCpu) return 0;
  const ContextGuard context(device);
  return capture_id(static_cast<CUstream>(stream));
}

}  // namespace

Places::Places(std::shared_ptr<const Group> group)
    : group_(std::move(group)), bytes_(group_->bytes() / kCount / kAlignment * kAlignment) {}

int Places::next(void* stream) {
  const unsigned long long capture = capture_of(group_->device(), stream);
  if (capture == 0) return int(eager_++ % 2);
  if (capture != capture_) {
    group_->barrier("the beginning of a graph", stream);
    capture_ = capture;
  }
  return 2 + int(captured_++ % 2);
}

void Places::put(const void* from, size_t bytes, int place, size_t offset, void* stream) const {
  char* const to = at(group_->rank(), place) + offset;
  if (bytes == 0) return;
  if (group_->device() == kCpu) {
    std::memcpy(to, from, bytes);
    return;
  }
  const ContextGuard context(group_->device());
  check(driver().memcpy_dtod_async(reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from), bytes,
                                   static_cast<CUstream>(stream)),
        "cuMemcpyDtoDAsync");
}

}  // namespace cleave

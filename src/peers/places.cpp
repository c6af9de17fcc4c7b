#include "peers/places.h"

#include <utility>

#include "cleave/problem.h"
#include "runtime/context.h"
#include "runtime/copy.h"
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

void Places::put(int place, size_t first, const void* data, size_t bytes, void* stream) const {
  enqueue_copy(group_->device(), at(group_->rank(), place) + first, data, bytes, stream);
}

}  // namespace cleave

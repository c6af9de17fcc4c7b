#include "runtime/copy.h"

#include <cstring>

#include "cleave/problem.h"
#include "runtime/context.h"
#include "runtime/driver.h"

namespace cleave {

void enqueue_copy(int device, void* to, const void* from, size_t bytes, void* stream) {
  if (bytes == 0) return;
  if (device == kCpu) {
    std::memcpy(to, from, bytes);
    return;
  }
  const ContextGuard context(device);
  const auto target = reinterpret_cast<CUdeviceptr>(to);
  const auto source = reinterpret_cast<CUdeviceptr>(from);
  check(driver().memcpy_dtod_async(target, source, bytes, static_cast<CUstream>(stream)), "cuMemcpyDtoDAsync");
}

}  // namespace cleave

#include "runtime/lazy_kernel.h"

#include "base/refuse.h"
#include "runtime/context.h"

namespace cleave {

const Kernel& LazyKernel::find(CUstream stream, const KernelRequest& request) const {
  const Kernel* kernel = find_kernel(request);
  if (kernel == nullptr) {
    if (is_capturing(stream)) {
      refuse(ErrorCode::capture,
             "the kernel of this plan ({}) is not compiled yet, and compiling is not possible while the stream is "
             "capturing a CUDA graph; call plan.prepare(stream) or run it once before capture",
             request.name);
    }
    kernel = &load_kernel(request);
  }
  kernel_.store(kernel, std::memory_order_release);
  return *kernel;
}

}  // namespace cleave

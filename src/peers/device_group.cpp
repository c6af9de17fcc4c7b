#include "peers/device_group.h"

#include <new>
#include <utility>

#include "peers/fold_launch.h"
#include "runtime/context.h"
#include "runtime/driver.h"
#include "runtime/kernel_cache.h"

namespace cleave {

DeviceGroup::DeviceGroup(int rank, int device, Memory memory)
    : MappedGroup(rank, std::move(memory)),
      device_(device),
      barrier_(load_kernel({"barrier", translation_unit(FoldKernel::fold, kBarrier), fold_entry, device})) {
  const ContextGuard context(device);
  const RelaxedCapture relaxed;
  void* place = nullptr;
  cleave::check(driver().mem_host_alloc(&place, sizeof(GroupRecord), CU_MEMHOSTALLOC_PORTABLE),
                "cuMemHostAlloc for a group");
  record_ = new (place) GroupRecord;
}

DeviceGroup::~DeviceGroup() {
  try {
    const ContextGuard context(device_);
    driver().ctx_synchronize();  // meetings may still go on
    driver().mem_free_host(record_);
  } catch (const Error&) {
    // The driver is gone, and the memory with it.
  }
}

void DeviceGroup::meet(const MeetingParams& params, void* stream) const {
  const FoldParams nothing{.meeting = params};
  const ContextGuard context(device_);
  barrier_.launch(fold_shape(1), static_cast<CUstream>(stream), &nothing);
}

}  // namespace cleave

#include "peers/device_group.h"

#include <new>
#include <utility>

#include "peers/gather_launch.h"
#include "runtime/context.h"
#include "runtime/driver.h"

namespace cleave {

DeviceGroup::DeviceGroup(int rank, int device, Memory memory) : MappedGroup(rank, std::move(memory)), device_(device) {
  const ContextGuard context(device);
  const RelaxedCapture relaxed;
  kernel(gather_config(0, nullptr), nullptr);  // a barrier's: a graph may begin with one
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

const Kernel& DeviceGroup::kernel(const GatherConfig& config, CUstream stream) const {
  const LazyKernel& known = kernels_[config.threads == 32 ? 0 : config.bytes == 16 ? 1 : config.bytes == 4 ? 2 : 3];
  return known.get(stream, [&] { return KernelRequest{"gather", translation_unit(config), gather_entry, device_}; });
}

void DeviceGroup::gather(const MeetingParams& meeting, size_t offset, size_t bytes, void* out, void* stream) const {
  const GatherConfig config = gather_config(bytes, out);
  GatherParams params = gather_params(config, size(), offset, bytes, out);
  params.meeting = meeting;
  const auto cuda_stream = static_cast<CUstream>(stream);
  const ContextGuard context(device_);
  kernel(config, cuda_stream).launch(gather_shape(size(), bytes), cuda_stream, &params);
}

void DeviceGroup::push(const MeetingParams& meeting, std::span<const Rows> parts, void* stream) const {
  const PushRowsConfig config = push_config(parts);
  PushRowsParams params = push_params(parts, size());
  params.meeting = meeting;
  const auto cuda_stream = static_cast<CUstream>(stream);
  const ContextGuard context(device_);
  const auto request = [&] { return KernelRequest{"push_rows", translation_unit(config), push_entry, device_}; };
  pushing_[number_of(config)].get(cuda_stream, request).launch(push_shape(parts), cuda_stream, &params);
}

}  // namespace cleave

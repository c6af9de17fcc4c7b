#include "peers/device_group.h"

#include <cstddef>
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

void DeviceGroup::quiesce() const {
  const ContextGuard context(device_);
  cleave::check(driver().ctx_synchronize(), "cuCtxSynchronize before a group is reset");
}

namespace {

/// Runs copy(stream) on a stream of its own, which waits for no other, and waits for it.
template <class Copy>
void at_once(int device, const char* what, const Copy& copy) {
  const ContextGuard context(device);
  CUstream stream = nullptr;
  check(driver().stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  const CUresult made = copy(stream);
  const CUresult done = driver().stream_synchronize(stream);
  driver().stream_destroy(stream);
  check(made, what);
  check(done, "cuStreamSynchronize");
}

CUdeviceptr address_of(const void* place) {
  return reinterpret_cast<CUdeviceptr>(place);
}

}  // namespace

void DeviceGroup::say_reset(uint64_t word, int to) const {
  const CUdeviceptr place = address_of(&header(to).resets[rank()]);
  at_once(device_, "cuMemcpyHtoDAsync to a peer",
          [&](CUstream stream) { return driver().memcpy_htod_async(place, &word, sizeof(word), stream); });
}

std::array<uint64_t, kMostRanks> DeviceGroup::read_resets() const {
  std::array<uint64_t, kMostRanks> words;
  const CUdeviceptr place = address_of(header(rank()).resets);
  at_once(device_, "cuMemcpyDtoHAsync of a group's resets",
          [&](CUstream stream) { return driver().memcpy_dtoh_async(words.data(), place, sizeof(words), stream); });
  return words;
}

void DeviceGroup::clear() const {
  const GroupHeader& own = header(rank());
  at_once(device_, "what clears a group's memory", [&](CUstream stream) {
    CUresult made = driver().memset_d8_async(address_of(&own), 0, offsetof(GroupHeader, broken), stream);
    if (made == CUDA_SUCCESS) made = driver().memset_d8_async(address_of(&own.broken), 1, sizeof(own.broken), stream);
    if (made == CUDA_SUCCESS)
      made = driver().memset_d8_async(address_of(&own) + kGroupHeaderBytes, 0, reserved(size()) - kGroupHeaderBytes,
                                      stream);
    return made;
  });
}

void DeviceGroup::mend() const {
  const GroupHeader& own = header(rank());
  at_once(device_, "what mends a group", [&](CUstream stream) {
    return driver().memset_d8_async(address_of(&own.broken), 0, sizeof(own.broken), stream);
  });
}

}  // namespace cleave

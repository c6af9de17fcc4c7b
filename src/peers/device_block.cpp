#include "peers/device_block.h"

#include "cleave/error.h"
#include "runtime/context.h"
#include "runtime/driver.h"

namespace cleave {
namespace {

CUmemLocation location_of(int device) {
  CUdevice handle = 0;
  check(driver().device_get(&handle, device), "cuDeviceGet");
  return {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = handle};
}

constexpr auto kExported = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

}  // namespace

DeviceBlock::DeviceBlock(int device, size_t bytes) : device_(device) {
  const ContextGuard context(device);
  const RelaxedCapture relaxed;
  const CUmemAllocationProp kind{
      .type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = kExported, .location = location_of(device)};
  size_t unit = 0;
  check(driver().mem_get_allocation_granularity(&unit, &kind, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
        "cuMemGetAllocationGranularity");
  bytes_ = (bytes + unit - 1) / unit * unit;
  check(driver().mem_create(&memory_, bytes_, &kind, 0), "cuMemCreate for a group");
  try {
    map();
    zero();
  } catch (const Error&) {
    release();
    throw;
  }
}

DeviceBlock::DeviceBlock(int device, const Descriptor& from, size_t bytes) : device_(device), bytes_(bytes) {
  const ContextGuard context(device);
  const RelaxedCapture relaxed;
  void* const file = reinterpret_cast<void*>(intptr_t(from.get()));
  check(driver().mem_import_from_shareable_handle(&memory_, file, kExported), "cuMemImportFromShareableHandle");
  try {
    map();
  } catch (const Error&) {
    release();
    throw;
  }
}

DeviceBlock::~DeviceBlock() {
  try {
    const ContextGuard context(device_);
    driver().ctx_synchronize();  // kernels may still use it
    release();
  } catch (const Error&) {
    // The driver is gone, and the memory with it.
  }
}

Descriptor DeviceBlock::exported() const {
  int file = -1;
  check(driver().mem_export_to_shareable_handle(&file, memory_, kExported, 0), "cuMemExportToShareableHandle");
  return Descriptor(file);
}

void DeviceBlock::map() {
  check(driver().mem_address_reserve(&address_, bytes_, 0, 0, 0), "cuMemAddressReserve for a group");
  check(driver().mem_map(address_, bytes_, 0, memory_, 0), "cuMemMap for a group");
  mapped_ = true;
  const CUmemAccessDesc access{.location = location_of(device_), .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  check(driver().mem_set_access(address_, bytes_, &access, 1), "cuMemSetAccess to a peer's memory");
}

/// On a stream of its own: zeroing must neither become part of a capture nor wait for the default stream.
void DeviceBlock::zero() const {
  CUstream stream = nullptr;
  check(driver().stream_create(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  const CUresult set = driver().memset_d8_async(address_, 0, bytes_, stream);
  const CUresult done = driver().stream_synchronize(stream);
  driver().stream_destroy(stream);
  check(set, "cuMemsetD8Async");
  check(done, "cuStreamSynchronize");
}

void DeviceBlock::release() noexcept {
  if (mapped_) driver().mem_unmap(address_, bytes_);
  if (address_) driver().mem_address_free(address_, bytes_);
  if (memory_) driver().mem_release(memory_);
}

}  // namespace cleave

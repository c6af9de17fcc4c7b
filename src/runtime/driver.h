// The CUDA driver, opened when first needed; nothing links libcuda, so the library loads on
// machines without it.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include "cleave/core/api.h"

namespace cleave {

// Every entry point the library uses, with the version of the API that fixes its signature. All
// exist since CUDA 12.0.
#define CLEAVE_DRIVER_FUNCTIONS(X)                                                                   \
  X(ctx_get_current, CtxGetCurrent, 4000)                                                            \
  X(ctx_get_device, CtxGetDevice, 2000)                                                              \
  X(ctx_pop_current, CtxPopCurrent, 4000)                                                            \
  X(ctx_push_current, CtxPushCurrent, 4000)                                                          \
  X(ctx_synchronize, CtxSynchronize, 2000)                                                           \
  X(device_can_access_peer, DeviceCanAccessPeer, 4000)                                               \
  X(device_get, DeviceGet, 2000)                                                                     \
  X(device_get_attribute, DeviceGetAttribute, 2000)                                                  \
  X(device_get_count, DeviceGetCount, 2000)                                                          \
  X(device_get_name, DeviceGetName, 2000)                                                            \
  X(device_get_uuid, DeviceGetUuid, 11040)                                                           \
  X(device_primary_ctx_retain, DevicePrimaryCtxRetain, 7000)                                         \
  X(device_total_mem, DeviceTotalMem, 3020)                                                          \
  X(driver_get_version, DriverGetVersion, 2020)                                                      \
  X(event_create, EventCreate, 2000)                                                                 \
  X(event_record, EventRecord, 2000)                                                                 \
  X(func_set_attribute, FuncSetAttribute, 9000)                                                      \
  X(get_error_name, GetErrorName, 6000)                                                              \
  X(get_error_string, GetErrorString, 6000)                                                          \
  X(init, Init, 2000)                                                                                \
  X(launch_kernel_ex, LaunchKernelEx, 11060)                                                         \
  X(mem_address_free, MemAddressFree, 10020)                                                         \
  X(mem_address_reserve, MemAddressReserve, 10020)                                                   \
  X(mem_alloc, MemAlloc, 3020)                                                                       \
  X(mem_create, MemCreate, 10020)                                                                    \
  X(mem_export_to_shareable_handle, MemExportToShareableHandle, 10020)                               \
  X(mem_free, MemFree, 3020)                                                                         \
  X(mem_free_host, MemFreeHost, 2000)                                                                \
  X(mem_get_allocation_granularity, MemGetAllocationGranularity, 10020)                              \
  X(mem_host_alloc, MemHostAlloc, 2020)                                                              \
  X(mem_import_from_shareable_handle, MemImportFromShareableHandle, 10020)                           \
  X(mem_map, MemMap, 10020)                                                                          \
  X(mem_release, MemRelease, 10020)                                                                  \
  X(mem_set_access, MemSetAccess, 10020)                                                             \
  X(mem_unmap, MemUnmap, 10020)                                                                      \
  X(memcpy_dtod_async, MemcpyDtoDAsync, 3020)                                                        \
  X(memcpy_dtoh_async, MemcpyDtoHAsync, 3020)                                                        \
  X(memcpy_htod_async, MemcpyHtoDAsync, 3020)                                                        \
  X(memset_d8_async, MemsetD8Async, 3020)                                                            \
  X(module_get_function, ModuleGetFunction, 2000)                                                    \
  X(module_load_data, ModuleLoadData, 2000)                                                          \
  X(module_unload, ModuleUnload, 2000)                                                               \
  X(occupancy_max_active_blocks_per_multiprocessor, OccupancyMaxActiveBlocksPerMultiprocessor, 6050) \
  X(occupancy_max_active_clusters, OccupancyMaxActiveClusters, 11070)                                \
  X(stream_create, StreamCreate, 2000)                                                               \
  X(stream_destroy, StreamDestroy, 4000)                                                             \
  X(stream_get_capture_info, StreamGetCaptureInfo, 11030)                                            \
  X(stream_get_ctx, StreamGetCtx, 9020)                                                              \
  X(stream_get_id, StreamGetId, 12000)                                                               \
  X(stream_synchronize, StreamSynchronize, 2000)                                                     \
  X(stream_wait_event, StreamWaitEvent, 3020)                                                        \
  X(tensor_map_encode_tiled, TensorMapEncodeTiled, 12000)                                            \
  X(tensor_map_encode_im2col, TensorMapEncodeIm2col, 12000)                                          \
  X(tensor_map_replace_address, TensorMapReplaceAddress, 12000)                                      \
  X(thread_exchange_stream_capture_mode, ThreadExchangeStreamCaptureMode, 10010)

struct Driver {
#define CLEAVE_MEMBER(member, name, version) PFN_cu##name##_v##version member = nullptr;
  CLEAVE_DRIVER_FUNCTIONS(CLEAVE_MEMBER)
#undef CLEAVE_MEMBER
};

/// Initialises CUDA at the first call. Throws Error(no_device), saying why, where there is no
/// driver or no GPU.
CLEAVE_TOOLS const Driver& driver();

/// Whether driver() would return.
bool driver_available() noexcept;

[[noreturn]] CLEAVE_TOOLS void throw_driver_error(CUresult result, const char* what);

/// Throws Error(driver), or Error(capture) for what a capturing stream forbids: the call, CUDA's
/// name and text for the error, and the remedy where one is known.
inline void check(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) throw_driver_error(result, what);
}

/// The newest CUDA version that the driver supports: 13000 for 13.0. Throws as driver() does.
inline int driver_version() {
  int version = 0;
  check(driver().driver_get_version(&version), "cuDriverGetVersion");
  return version;
}

}  // namespace cleave

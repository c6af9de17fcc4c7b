// A libcuda without a GPU: it says that there is an H100, and remembers the last launch instead of
// running it. Tensor maps become the description that they were encoded from.
#include "cleave/reduce/reduce_params.h"
#include "fake_driver.h"
#include "rules.h"

#include <cuda.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {

uint64_t capture = 0;                      // the number of the capture that all streams take part in
CUgraphNode node = nullptr;                // what it has come to
std::map<const void*, uint64_t> captures;  // of streams that take part in another
int launches_to_failure = -1;

uint64_t capture_of(CUstream stream) {
  const auto found = captures.find(stream);
  return found == captures.end() ? capture : found->second;
}

CUresult capture_info(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* number, const CUgraphNode** nodes,
                      size_t* count) {
  const uint64_t capture = capture_of(stream);
  *status = capture == 0 ? CU_STREAM_CAPTURE_STATUS_NONE : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (number != nullptr) *number = capture;
  if (nodes != nullptr) *nodes = &node;
  if (count != nullptr) *count = node != nullptr;
  return CUDA_SUCCESS;
}

void add_node() {
  if (capture != 0) node = reinterpret_cast<CUgraphNode>(reinterpret_cast<uintptr_t>(node) + 8);
}

}  // namespace

// As cuda.h has it, and below as the library asks for it.
#if CUDA_VERSION >= 13000
extern "C" CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* number, CUgraph*,
                                           const CUgraphNode** nodes, const CUgraphEdgeData**, size_t* count) {
  return capture_info(stream, status, number, nodes, count);
}
#endif
#undef cuStreamGetCaptureInfo
#undef cuStreamGetCaptureInfo_v2

namespace {

fake_driver::Launch last, last_reduce;
size_t params_bytes = sizeof(cleave::GemmParams);
uint64_t stream_id = 1;
std::atomic<uint64_t> threads;

struct Order {
  std::vector<fake_driver::Work> work;
  std::map<const void*, std::set<int>> done_before;  // what a stream is given next, or an event
  uintptr_t made = 0;                                // streams and events

  void enqueue(const fake_driver::Work& x) {
    std::set<int>& before = done_before[x.stream];
    work.push_back(x);
    work.back().done_before = before;
    before.insert(int(work.size()) - 1);
  }

  template <class Handle>
  Handle next() {
    return reinterpret_cast<Handle>(++made << 20);
  }
} order;

constexpr char kContext = 0, kModule = 0, kFunction = 0, kReduceFunction = 0;

template <class Handle>
Handle handle(const char& object) {
  return reinterpret_cast<Handle>(const_cast<char*>(&object));
}

int attribute(CUdevice_attribute which) {
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return 9;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return 0;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return 132;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return 232448;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return 50 << 20;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      return 1980000;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      return 2619000;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      return 5120;
    default:
      return 1;
  }
}

}  // namespace

extern "C" {

const fake_driver::Launch* fake_driver_last_launch() {
  return &last;
}

const fake_driver::Launch* fake_driver_last_reduce() {
  return &last_reduce;
}

void fake_driver_set_params_bytes(size_t bytes) {
  params_bytes = bytes;
}

void fake_driver_set_stream_id(uint64_t id) {
  stream_id = id;
}

void fake_driver_set_capture(uint64_t number) {
  capture = number;
  node = nullptr;
}
void fake_driver_add_node() {
  add_node();
}

void fake_driver_set_capture_of(void* stream, uint64_t number) {
  captures[stream] = number;
}
void fake_driver_fail_after(int launches) {
  launches_to_failure = launches;
}

int fake_driver_work_count() {
  return int(order.work.size());
}
const fake_driver::Work* fake_driver_work(int number) {
  return &order.work[size_t(number)];
}
bool fake_driver_is_behind(void* stream, int number) {
  return order.done_before[stream].contains(number);
}

CUresult cuInit(unsigned) {
  return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int* version) {
  const char* chosen = std::getenv("FAKE_CUDA_VERSION");
  *version = chosen ? std::atoi(chosen) : CUDA_VERSION;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult, const char** name) {
  *name = "an error";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "of the fake driver";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceGetCount(int* count) {
  *count = 1;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  std::strncpy(name, "NVIDIA H100 80GB HBM3", size_t(size));
  return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem(size_t* bytes, CUdevice) {
  *bytes = size_t(80) << 30;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) {
  *value = attribute(which);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  *context = handle<CUcontext>(kContext);
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) {
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = handle<CUcontext>(kContext);
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext) {
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext* context) {
  return cuCtxGetCurrent(context);
}
CUresult cuCtxSetCurrent(CUcontext) {
  return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize() {
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode*) {
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* number, CUgraph*,
                                   const CUgraphNode** nodes, size_t* count) {
  return capture_info(stream, status, number, nodes, count);
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  *stream = (flags & CU_STREAM_NON_BLOCKING) != 0 ? order.next<CUstream>() : nullptr;
  return CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  order.done_before[stream].merge(std::set(order.done_before[event]));
  return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent* event, unsigned) {
  *event = order.next<CUevent>();
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  order.done_before[event] = order.done_before[stream];
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream) {
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream) {
  return CUDA_SUCCESS;
}
CUresult cuStreamGetCtx(CUstream, CUcontext* context) {
  return cuCtxGetCurrent(context);
}
CUresult cuStreamGetId(CUstream stream, unsigned long long* id) {
  if (capture_of(stream) != 0) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  thread_local const uint64_t of_thread = 1'000'000 + threads++;
  *id = stream == CU_STREAM_PER_THREAD ? of_thread : stream_id;
  return CUDA_SUCCESS;
}

// The host's memory serves as the device's.
CUresult cuPointerGetAttribute(void* value, CUpointer_attribute, CUdeviceptr) {
  *static_cast<int*>(value) = 0;  // the ordinal
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr* data, size_t bytes) {
  *data = reinterpret_cast<CUdeviceptr>(std::malloc(bytes));
  return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void** data, size_t bytes, unsigned) {
  *data = std::malloc(bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void* data) {
  std::free(data);
  return CUDA_SUCCESS;
}
CUresult cuMemFree(CUdeviceptr data) {
  std::free(reinterpret_cast<void*>(data));
  return CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr data, unsigned char value, size_t bytes, CUstream) {
  std::memset(reinterpret_cast<void*>(data), value, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  order.enqueue(
      {.stream = stream, .to = reinterpret_cast<void*>(to), .from = reinterpret_cast<void*>(from), .bytes = bytes});
  return CUDA_SUCCESS;
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return CUDA_SUCCESS;
}
CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  *module = handle<CUmodule>(kModule);
  return std::memcmp(image, "\177ELF", 4) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  *function = handle<CUfunction>(std::string_view(name) == "cleave_reduce" ? kReduceFunction : kFunction);
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule) {
  return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) {
  *value = 0;
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) {
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveClusters(int* count, CUfunction, const CUlaunchConfig* launch) {
  for (unsigned i = 0; i < launch->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = launch->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) *count = 132 / int(attribute.value.clusterDim.x);
  }
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* count, CUfunction, int, size_t) {
  *count = 1;
  return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* size, const cuuint64_t* stride, const cuuint32_t* box,
                                const cuuint32_t* step, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  if (!fake_driver::is_tensor(rank, address, size, stride, step) || !fake_driver::is_line(type, box[0], swizzle))
    return CUDA_ERROR_INVALID_VALUE;
  for (cuuint32_t i = 1; i < rank; ++i)
    if (box[i] < 1 || box[i] > 256) return CUDA_ERROR_INVALID_VALUE;
  *map = {};
  cuuint64_t* const words = map->opaque;
  words[0] = reinterpret_cast<uintptr_t>(address);
  words[1] = uint64_t(type) << 32 | uint64_t(swizzle) << 16 | rank;
  for (cuuint32_t i = 0; i < rank; ++i) {
    words[2 + i] = size[i];
    words[6 + i] = i == 0 ? 0 : stride[i - 1];
    words[10 + i] = box[i];
  }
  return CUDA_SUCCESS;
}
CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                 const cuuint64_t* size, const cuuint64_t* stride, const int* lower, const int* upper,
                                 cuuint32_t channels, cuuint32_t pixels, const cuuint32_t* step, CUtensorMapInterleave,
                                 CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  if (!fake_driver::is_tensor(rank, address, size, stride, step) || !fake_driver::is_line(type, channels, swizzle) ||
      !fake_driver::are_corners(rank, lower, upper) || pixels < 1 || pixels > 1024)
    return CUDA_ERROR_INVALID_VALUE;
  *map = {};
  cuuint64_t* const words = map->opaque;
  words[0] = reinterpret_cast<uintptr_t>(address);
  words[1] = uint64_t(type) << 32 | uint64_t(swizzle) << 16 | rank;
  for (cuuint32_t i = 0; i < rank; ++i) {
    words[2 + i] = size[i];
    if (i > 0) words[6 + i] = stride[i - 1];
    words[11] = words[11] << 8 | step[i];
  }
  for (cuuint32_t i = 0; i + 2 < rank; ++i) {
    words[12] = words[12] << 16 | uint16_t(lower[i]);
    words[13] = words[13] << 16 | uint16_t(upper[i]);
  }
  words[14] = channels;
  words[15] = pixels;
  return CUDA_SUCCESS;
}
CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* address) {
  if (reinterpret_cast<uintptr_t>(address) % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
  map->opaque[0] = reinterpret_cast<uintptr_t>(address);
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* launch, CUfunction function, void** arguments, void**) {
  if (!fake_driver::is_launchable(*launch)) return CUDA_ERROR_INVALID_VALUE;
  if (launches_to_failure >= 0 && launches_to_failure-- == 0) return CUDA_ERROR_LAUNCH_FAILED;
  const bool reduces = function == handle<CUfunction>(kReduceFunction);
  fake_driver::Launch& last = reduces ? last_reduce : ::last;
  last.blocks = launch->gridDimX * launch->gridDimY * launch->gridDimZ;
  last.threads = launch->blockDimX * launch->blockDimY * launch->blockDimZ;
  last.shared_bytes = launch->sharedMemBytes;
  last.stream = launch->hStream;
  last.cluster = 1;
  last.programmatic = false;
  for (unsigned i = 0; i < launch->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = launch->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) last.cluster = attribute.value.clusterDim.x;
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
      last.programmatic = attribute.value.programmaticStreamSerializationAllowed != 0;
  }
  const size_t bytes = reduces ? sizeof(cleave::ReduceParams) : params_bytes;
  if (bytes != 0) std::memcpy(last.memory, arguments[0], bytes);
  ++last.count;
  order.enqueue({.stream = launch->hStream});
  add_node();
  return CUDA_SUCCESS;
}

/// Whatever it does not have may be asked for, but not called.
CUresult cuGetProcAddress_v2(const char* symbol, void** function, int, cuuint64_t, CUdriverProcAddressQueryResult*) {
  Dl_info self = {};
  dladdr(&kContext, &self);
  void* const library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  const std::string name = symbol;
  *function = dlsym(library, (name + "_v2").c_str());
  if (*function == nullptr) *function = dlsym(library, name.c_str());
  if (*function == nullptr) *function = reinterpret_cast<void*>(&std::abort);
  return CUDA_SUCCESS;
}

}  // extern "C"

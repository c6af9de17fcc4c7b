#include "runtime/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "base/refuse.h"
#include "process/fork.h"

namespace cleave {
namespace {

struct Loaded {
  Driver functions;
  std::string problem;  // empty: usable
};

/// The process that began to use CUDA, as fork_count() has it: a child cannot go on with it, which
/// the driver says in less clear words, or not at all.
constexpr uint32_t kNone = UINT32_MAX;
constinit std::atomic<uint32_t> began_in = kNone;

std::string too_old(const char* missing) {
  return fmt::format("the NVIDIA driver lacks {}; CUDA 12.0 (driver 525) or newer is needed", missing);
}

std::string load(Driver& f) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return "no NVIDIA driver is installed (libcuda.so.1 was not found)";
  const auto get = reinterpret_cast<PFN_cuGetProcAddress_v12000>(dlsym(library, "cuGetProcAddress_v2"));
  if (!get) return too_old("cuGetProcAddress_v2");
#define CLEAVE_RESOLVE(member, name, version)                                                                      \
  if (get("cu" #name, reinterpret_cast<void**>(&f.member), version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, nullptr) != \
          CUDA_SUCCESS ||                                                                                          \
      !f.member) {                                                                                                 \
    return too_old("cu" #name);                                                                                    \
  }
  CLEAVE_DRIVER_FUNCTIONS(CLEAVE_RESOLVE)
#undef CLEAVE_RESOLVE
  began_in = fork_count();
  if (const CUresult result = f.init(0); result != CUDA_SUCCESS) {
    began_in = kNone;
    const char* text = nullptr;
    f.get_error_string(result, &text);
    return fmt::format(
        "cuInit: {} (error {}){}", text ? text : "unknown", int(result),
        result == CUDA_ERROR_NOT_INITIALIZED
            ? "; a process that was forked from one that uses CUDA cannot use it: start it by spawn or forkserver"
            : "");
  }
  int devices = 0;
  if (f.device_get_count(&devices) != CUDA_SUCCESS || devices == 0) return "there is no CUDA device";
  return "";
}

const Loaded& loaded() noexcept {
  static constinit Lazy<const Loaded> here, in_child;
  const uint32_t began = began_in.load(std::memory_order_relaxed);
  if (began != kNone && began != fork_count()) {
    return in_child.get([] {
      return Loaded{.problem =
                        "this process was forked from one that uses CUDA, which does not survive it; start it by spawn "
                        "or forkserver (multiprocessing.set_start_method)"};
    });
  }
  return here.get([] {
    Loaded result;
    result.problem = load(result.functions);
    return result;
  });
}

const char* remedy(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return "Free tensors, or choose a split_k_mode with a smaller workspace_size.";
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
      return "A kernel that was launched before, by anyone in this process, failed; the process has to restart. Run it "
             "under compute-sanitizer to see which one.";
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
      return "Check that the stream exists and belongs to the plan's device.";
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      return "The driver is older than the NVRTC that compiled the kernel: update the driver, or install an NVRTC of "
             "the driver's CUDA version.";
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
      return "The default stream cannot be used while another stream is capturing; pass the capturing stream.";
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
      return "Call prepare() before the capture begins.";
    default:
      return "";
  }
}

bool is_capture_error(CUresult result) {
  return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

}  // namespace

const Driver& driver() {
  const Loaded& state = loaded();
  if (!state.problem.empty()) {
    refuse(ErrorCode::no_device,
           "No GPU can be used: {}. The CPU backend needs none: pass arrays in the host's memory, or the device cpu "
           "(kCpu in C++).",
           state.problem);
  }
  return state.functions;
}

bool driver_available() noexcept {
  return loaded().problem.empty();
}

void throw_driver_error(CUresult result, const char* what) {
  const char* name = nullptr;
  const char* text = nullptr;
  driver().get_error_name(result, &name);
  driver().get_error_string(result, &text);
  const char* advice = remedy(result);
  refuse(is_capture_error(result) ? ErrorCode::capture : ErrorCode::driver, "{} failed: {}: {}.{}{}", what,
         name ? name : "unknown error", text ? text : fmt::format("code {}", int(result)), *advice ? " " : "", advice);
}

}  // namespace cleave

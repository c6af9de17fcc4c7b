#include "jit/nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <tuple>

#include "base/refuse.h"
#include "jit/build_id.h"
#include "process/fork.h"

namespace cleave {
namespace {

constexpr int newest_major = 13, oldest_major = 12;
// Older ones have no mma.sync of 8-bit floats.
constexpr NvrtcVersion oldest = {.major = oldest_major, .minor = 4};

#define CLEAVE_NVRTC_FUNCTIONS(X)            \
  X(get_error_string, GetErrorString)        \
  X(version, Version)                        \
  X(create_program, CreateProgram)           \
  X(destroy_program, DestroyProgram)         \
  X(compile_program, CompileProgram)         \
  X(get_program_log_size, GetProgramLogSize) \
  X(get_program_log, GetProgramLog)          \
  X(get_cubin_size, GetCUBINSize)            \
  X(get_cubin, GetCUBIN)

struct Nvrtc {
#define CLEAVE_MEMBER(member, name) decltype(&::nvrtc##name) member = nullptr;
  CLEAVE_NVRTC_FUNCTIONS(CLEAVE_MEMBER)
#undef CLEAVE_MEMBER
  std::string path;
  std::string build;
};

bool resolve_all(void* library, Nvrtc& nvrtc) {
#define CLEAVE_RESOLVE(member, name)                                                      \
  nvrtc.member = reinterpret_cast<decltype(nvrtc.member)>(dlsym(library, "nvrtc" #name)); \
  if (!nvrtc.member) return false;
  CLEAVE_NVRTC_FUNCTIONS(CLEAVE_RESOLVE)
#undef CLEAVE_RESOLVE
  return true;
}

// Read once: a change of the environment in mid-run must not give two compilers in one process.
struct Environment {
  std::string library = read("CLEAVE_NVRTC");
  std::vector<std::string> toolkits = {read("CUDA_HOME"), read("CUDA_PATH"), "/usr/local/cuda"};

  static std::string read(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
  }
};

const Environment& environment() {
  static constinit Lazy<const Environment> instance;
  return instance.get();
}

std::string path_of(void* function) {
  Dl_info info = {};
  return dladdr(function, &info) && info.dli_fname ? info.dli_fname : "";
}

NvrtcVersion version_of(const Nvrtc& nvrtc) {
  NvrtcVersion version;
  nvrtc.version(&version.major, &version.minor);
  return version;
}

// NVRTC opens its companion library by bare name when it compiles, which fails for a library
// outside the system's search path (such as a wheel's) unless the companion is in the process
// already.
void load_builtins(const Nvrtc& nvrtc) {
  const auto [major, minor] = version_of(nvrtc);
  const auto directory = std::filesystem::path(nvrtc.path).parent_path();
  const auto name = fmt::format("libnvrtc-builtins.so.{}.{}", major, minor);
  dlopen((directory / name).c_str(), RTLD_NOW | RTLD_LOCAL);
}

class Loader {
 public:
  static Loader& instance() {
    static constinit Lazy<Loader> loader;
    return loader.get();
  }

  void add_search_path(std::string directory) {
    const std::lock_guard lock(mutex_);
    search_paths_.push_back(std::move(directory));
  }

  /// nullptr if there is none. Failures are not remembered: a search path may be added later.
  const Nvrtc* find() {
    if (const Nvrtc* found = found_.load(std::memory_order_acquire)) return found;
    const std::lock_guard lock(mutex_);
    if (!found_.load(std::memory_order_relaxed) && search()) found_.store(&nvrtc_);
    return found_.load(std::memory_order_relaxed);
  }

  const Nvrtc& get() {
    if (const Nvrtc* found = find()) return *found;
    const std::lock_guard lock(mutex_);
    refuse(ErrorCode::compiler,
           "NVRTC, which compiles the kernels, was not found; it is to be {}.{} or newer. Run `pip install "
           "nvidia-cuda-nvrtc`, install the CUDA toolkit, or set CLEAVE_NVRTC to the path of libnvrtc.so. Tried: {}",
           oldest.major, oldest.minor, fmt::join(tried_, ", "));
  }

 private:
  bool search() {
    tried_.clear();
    // An explicit choice is final: quietly taking another library would hide a mistyped path.
    if (!environment().library.empty()) return open(environment().library);
    // First what compiles for this driver, wherever it lies: the driver would refuse the others'
    // cubins.
    const int loadable = std::clamp(loadable_major(), oldest_major, newest_major);
    return search(loadable, oldest_major) || search(newest_major, loadable + 1);
  }

  bool search(int newest, int oldest) {
    std::vector<std::string> names;
    for (int major = newest; major >= oldest; --major) names.push_back(fmt::format("libnvrtc.so.{}", major));
    const auto open_any = [&](const std::filesystem::path& directory, int flags = 0) {
      return std::ranges::any_of(names, [&](const std::string& name) { return open(directory / name, flags); });
    };
    if (open_any("", RTLD_NOLOAD) || open_any("")) return true;
    if (std::ranges::any_of(search_paths_, open_any)) return true;
    return std::ranges::any_of(environment().toolkits, [&](const std::string& toolkit) {
      return !toolkit.empty() && open_any(toolkit + "/lib64");
    });
  }

  bool open(const std::string& file, int flags = 0) {
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | flags);
    if (!(flags & RTLD_NOLOAD)) tried_.push_back(file);
    if (!library) return false;
    if (!resolve_all(library, nvrtc_) || !is_new_enough()) {
      dlclose(library);
      return false;
    }
    nvrtc_.path = path_of(reinterpret_cast<void*>(nvrtc_.version));
    nvrtc_.build = build_of(reinterpret_cast<void*>(nvrtc_.version));
    load_builtins(nvrtc_);
    return true;
  }

  bool is_new_enough() {
    const NvrtcVersion version = version_of(nvrtc_);
    if (std::tie(version.major, version.minor) >= std::tie(oldest.major, oldest.minor)) return true;
    const std::string path = path_of(reinterpret_cast<void*>(nvrtc_.version));
    tried_.push_back(fmt::format("{}, which is {}.{}", path, version.major, version.minor));
    return false;
  }

  ForkSharedMutex mutex_;
  std::vector<std::string> search_paths_;
  std::vector<std::string> tried_;
  Nvrtc nvrtc_;
  std::atomic<const Nvrtc*> found_ = nullptr;
};

const Nvrtc& nvrtc() {
  return Loader::instance().get();
}

void check(nvrtcResult result, const char* what) {
  if (result == NVRTC_SUCCESS) return;
  refuse(ErrorCode::compiler, "{} failed: {}", what, nvrtc().get_error_string(result));
}

class Program {
 public:
  Program(const std::string& source, std::span<const EmbeddedFile> headers) {
    std::vector<const char*> texts, names;
    for (const EmbeddedFile& header : headers) {
      texts.push_back(header.text);
      names.push_back(header.name);
    }
    check(
        nvrtc().create_program(&program_, source.c_str(), "cleave.cu", int(headers.size()), texts.data(), names.data()),
        "nvrtcCreateProgram");
  }
  ~Program() { nvrtc().destroy_program(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  nvrtcResult compile(const std::vector<std::string>& options) {
    std::vector<const char*> pointers;
    for (const std::string& option : options) pointers.push_back(option.c_str());
    return nvrtc().compile_program(program_, int(pointers.size()), pointers.data());
  }

  std::string log() const {
    size_t size = 0;
    check(nvrtc().get_program_log_size(program_, &size), "nvrtcGetProgramLogSize");
    std::string text(size, '\0');
    check(nvrtc().get_program_log(program_, text.data()), "nvrtcGetProgramLog");
    while (!text.empty() && (text.back() == '\0' || text.back() == '\n')) text.pop_back();
    return text;
  }

  std::string cubin() const {
    size_t size = 0;
    check(nvrtc().get_cubin_size(program_, &size), "nvrtcGetCUBINSize");
    std::string image(size, '\0');
    check(nvrtc().get_cubin(program_, image.data()), "nvrtcGetCUBIN");
    return image;
  }

 private:
  nvrtcProgram program_ = nullptr;
};

std::string first_lines(const std::string& text, int count) {
  size_t end = 0;
  for (int i = 0; i < count && end != std::string::npos; ++i) end = text.find('\n', end + 1);
  return text.substr(0, end);
}

}  // namespace

int loadable_major() {
  // Not the runtime's driver(), which would initialise it.
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  int version = 0;
  using GetVersion = int (*)(int*);
  const auto get = driver ? reinterpret_cast<GetVersion>(dlsym(driver, "cuDriverGetVersion")) : nullptr;
  const bool known = get && get(&version) == 0 && version > 0;
  return known ? version / 1000 : newest_major;
}

void add_library_search_path(std::string directory) {
  Loader::instance().add_search_path(std::move(directory));
}

bool nvrtc_available() noexcept {
  try {
    return Loader::instance().find() != nullptr;
  } catch (...) {
    return false;
  }
}

NvrtcVersion nvrtc_version() {
  NvrtcVersion version;
  check(nvrtc().version(&version.major, &version.minor), "nvrtcVersion");
  return version;
}

std::string nvrtc_path() {
  return nvrtc().path;
}

std::string nvrtc_build() {
  return nvrtc().build;
}

NvrtcOutput nvrtc_compile(const std::string& source, std::span<const EmbeddedFile> headers,
                          const std::vector<std::string>& options) {
  Program program(source, headers);
  const nvrtcResult result = program.compile(options);
  if (result != NVRTC_SUCCESS) {
    refuse(ErrorCode::compiler, "NVRTC refused a kernel ({}, options {}):\n{}", nvrtc().get_error_string(result),
           fmt::join(options, " "), first_lines(program.log(), 20));
  }
  return {.cubin = program.cubin(), .log = program.log()};
}

}  // namespace cleave

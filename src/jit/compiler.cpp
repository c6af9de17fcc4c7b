#include "jit/compiler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <sstream>

#include "base/embedded.h"
#include "base/refuse.h"
#include "jit/disk_cache.h"
#include "jit/kernel_packs.h"
#include "jit/nvrtc.h"
#include "process/fork.h"

namespace cleave {
namespace {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::vector<std::string> options_for(const std::string& arch, NvrtcVersion version) {
  std::vector<std::string> options = {
      "--gpu-architecture=" + arch,
      "-std=c++20",
      "-DNDEBUG",
      "--ptxas-options=-v",  // prints the resources that parse_resources reads
  };
  // NVRTC has had a cache of its own since 12.9; a second one would only cost disk and hide compile
  // times.
  const bool has_cache = version.major > 12 || (version.major == 12 && version.minor >= 9);
  if (has_cache) options.push_back("--no-cache");
  return options;
}

/// As packs have it, whose NVRTC may be any.
CacheKey pack_key(const std::string& source, const std::string& arch) {
  const auto options = options_for(arch, {});
  std::vector<std::string_view> parts = {"pack", source};
  parts.insert(parts.end(), options.begin(), options.end());
  return CacheKey(library_key(), std::move(parts));
}

CompiledKernel run_nvrtc(const std::string& source, const std::vector<std::string>& options) {
  NvrtcOutput output = nvrtc_compile(source, embedded_headers(), options);
  CompiledKernel kernel{.cubin = std::move(output.cubin), .log = std::move(output.log)};
  kernel.resources = parse_resources(kernel.log);
  return kernel;
}

/// Where there are packs and no compiler, the packs are what the user counts on.
void check_compiler() {
  if (kernel_packs().empty() || nvrtc_available()) return;
  std::vector<std::string> packs;
  for (const KernelPack& pack : kernel_packs()) {
    packs.push_back(pack.problem().empty() ? fmt::format("{} has {} others", pack.path().string(), pack.kernels())
                                           : fmt::format("{}: {}", pack.path().string(), pack.problem()));
  }
  refuse(ErrorCode::compiler,
         "no pack has this kernel ({}), and there is no NVRTC to compile it; build a pack that has it (`cleave pack "
         "build`), or run `pip install nvidia-cuda-nvrtc`",
         fmt::join(packs, "; "));
}

/// From the disk cache, or by NVRTC.
CompiledKernel compile_here(const std::string& source, const std::string& arch) {
  check_compiler();
  const NvrtcVersion version = nvrtc_version();
  const auto options = options_for(arch, version);
  const std::string compiler = fmt::format("{}.{} {}", version.major, version.minor, nvrtc_build());
  std::vector<std::string_view> parts = {compiler, source};
  parts.insert(parts.end(), options.begin(), options.end());
  const CacheKey key(library_key(), std::move(parts));
  return DiskCache::user().get(key, arch, [&] { return run_nvrtc(source, options); });
}

}  // namespace

const CacheKey& library_key() {
  static constinit Lazy<const CacheKey> key;
  return key.get([] {
    std::vector<std::string_view> parts = {CLEAVE_VERSION};
    for (const EmbeddedFile& header : embedded_headers()) {
      parts.push_back(header.name);
      parts.push_back(header.text);
    }
    return CacheKey(parts);
  });
}

CompiledKernel compile(const std::string& source, const std::string& arch) {
  const Stopwatch stopwatch;
  auto packed = load_packed(pack_key(source, arch));
  CompiledKernel kernel = packed ? *std::move(packed) : compile_here(source, arch);
  kernel.seconds = stopwatch.seconds();
  return kernel;
}

std::string make_pack(std::span<const KernelSource> sources) {
  std::vector<PackedKernel> kernels;
  for (const auto& [source, arch] : sources)
    kernels.push_back({pack_key(source, arch), arch, compile_here(source, arch)});
  return pack_of(std::move(kernels), library_key(), nvrtc_version());
}

CompiledKernel compile_uncached(const std::string& source, const std::string& arch) {
  const Stopwatch stopwatch;
  CompiledKernel kernel = run_nvrtc(source, options_for(arch, nvrtc_version()));
  kernel.seconds = stopwatch.seconds();
  return kernel;
}

// The lines of interest read, in every ptxas so far and whatever stands before them:
//   256 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
//   Used 30 registers, used 1 barriers, 256 bytes cumulative stack size, 128 bytes smem
KernelResources parse_resources(const std::string& ptxas_log) {
  KernelResources resources;
  std::istringstream lines(ptxas_log);
  for (std::string line; std::getline(lines, line);) {
    // The number that precedes `unit`, or 0.
    const auto number_before = [&line](const char* unit) -> uint32_t {
      const size_t end = line.find(unit);
      if (end == std::string::npos) return 0;
      size_t begin = end;
      while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
      uint32_t number = 0;
      std::from_chars(line.data() + begin, line.data() + end, number);
      return number;
    };
    resources.registers = std::max(resources.registers, number_before(" registers"));
    resources.stack_bytes = std::max(resources.stack_bytes, number_before(" bytes stack frame"));
    resources.static_shared_bytes = std::max(resources.static_shared_bytes, number_before(" bytes smem"));
    resources.spill_store_bytes += number_before(" bytes spill stores");
    resources.spill_load_bytes += number_before(" bytes spill loads");
  }
  return resources;
}

}  // namespace cleave

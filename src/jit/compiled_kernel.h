// What compiling a kernel yields, and what the disk cache keeps of it.
#pragma once

#include <cstdint>
#include <string>

namespace cleave {

/// As ptxas reports them.
struct KernelResources {
  uint32_t registers = 0;  ///< per thread
  uint32_t stack_bytes = 0;
  uint32_t spill_store_bytes = 0;
  uint32_t spill_load_bytes = 0;
  uint32_t static_shared_bytes = 0;

  friend bool operator==(const KernelResources&, const KernelResources&) = default;
};

struct CompiledKernel {
  std::string cubin;
  std::string log;  ///< NVRTC's and ptxas's, warnings included; also of the run that filled the cache
  KernelResources resources = {};
  double seconds = 0;  ///< spent by this call, in the cache or in the compiler
  bool from_cache = false;
};

}  // namespace cleave

// The kernels this process has loaded.
#pragma once

#include <string>
#include <vector>

#include "cleave/core/api.h"
#include "jit/compiler.h"
#include "runtime/module.h"

namespace cleave {

struct KernelRequest {
  std::string name;  ///< for messages
  std::string source;
  const char* entry = nullptr;
  int device = 0;
  KernelLimits limits = {};
};

/// Compiled and loaded at the first request, and kept for the life of the process: a captured graph
/// may hold it, and no plan knows. Their number is bounded by what sources there are, which sizes
/// of a problem enter as choices alone (tile, stages, alignment, a capacity). Threads that want the same kernel wait
/// for one of them; different kernels compile side by side. Throws Error(compiler) or Error(driver); a later request
/// then tries again.
CLEAVE_TOOLS const Kernel& load_kernel(const KernelRequest& request);

/// The same if it is loaded already, else nullptr; never compiles, never waits for a compile.
const Kernel* find_kernel(const KernelRequest& request);

/// What this process has loaded, for `cleave.build_pack`; each kernel once.
CLEAVE_TOOLS std::vector<KernelSource> loaded_sources();

/// What the kernels of a device are compiled for: "sm_90a", "sm_80". Throws Error(unsupported) for
/// a device older than sm_80.
CLEAVE_TOOLS std::string device_arch(int device);

}  // namespace cleave

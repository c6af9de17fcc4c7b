// Source text to cubin: through the disk cache if it can, else with NVRTC.
#pragma once

#include <string>
#include <vector>

#include "cleave/core/api.h"
#include "jit/compiled_kernel.h"
#include "jit/disk_cache.h"

namespace cleave {

/// `arch` is a real architecture: "sm_90a", "sm_80". Needs NVRTC (whose build is part of the cache
/// key), but neither a GPU nor a driver. Throws Error(compiler) if NVRTC is missing or
/// refuses the source.
CLEAVE_TOOLS CompiledKernel compile(const std::string& source, const std::string& arch);

/// The same, never from the cache and not stored: what `cleave compile` times.
CompiledKernel compile_uncached(const std::string& source, const std::string& arch);

/// What every kernel of this build of Cleave depends on: its version and the kernel headers.
CLEAVE_TOOLS const CacheKey& library_key();

/// Sums the spills of all functions in ptxas's statistics; the registers are those of the largest
/// one.
KernelResources parse_resources(const std::string& ptxas_log);

}  // namespace cleave

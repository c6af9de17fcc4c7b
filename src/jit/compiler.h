// Source text to cubin: from a pack or the disk cache if it can, else with NVRTC.
#pragma once

#include <span>
#include <string>

#include "cleave/core/api.h"
#include "jit/compiled_kernel.h"
#include "jit/disk_cache.h"

namespace cleave {

/// `arch` is a real architecture: "sm_90a", "sm_80". Needs NVRTC (whose build is part of the cache
/// key) where no pack has the kernel, but neither a GPU nor a driver. Throws Error(compiler) if NVRTC is missing or
/// refuses the source.
CLEAVE_TOOLS CompiledKernel compile(const std::string& source, const std::string& arch);

struct KernelSource {
  std::string text;
  std::string arch;
};

/// The content of a pack (kernel_pack.h) with these kernels, from the disk cache or NVRTC, never from another pack:
/// one NVRTC has made all of them.
CLEAVE_TOOLS std::string make_pack(std::span<const KernelSource> sources);

/// The same as compile(), never from the cache and not stored: what `cleave compile` times.
CompiledKernel compile_uncached(const std::string& source, const std::string& arch);

/// What every kernel of this build of Cleave depends on: its version and the kernel headers.
CLEAVE_TOOLS const CacheKey& library_key();

/// Sums the spills of all functions in ptxas's statistics; the registers are those of the largest
/// one.
KernelResources parse_resources(const std::string& ptxas_log);

}  // namespace cleave

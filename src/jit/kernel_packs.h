// The packs of this process: those that CLEAVE_PACKS names, then those of the folder `packs` beside the library, where
// a wheel of kernels puts its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cleave/core/api.h"
#include "jit/kernel_pack.h"

namespace cleave {

/// Opened at first use, and kept. CLEAVE_PACKS: files, and directories, whose *.pack are meant, with ":" between them.
CLEAVE_TOOLS const std::vector<KernelPack>& kernel_packs();

/// The kernel of the first pack that has it.
std::optional<CompiledKernel> load_packed(const CacheKey& key);

}  // namespace cleave

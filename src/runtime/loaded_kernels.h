// Kernels of products by their configurations, once they are loaded: their texts, by which kernel_cache.h has them,
// take longer to print than a product of few rows takes to plan.
#pragma once

#include <cstddef>

#include "cleave/config/gemm_config.h"
#include "runtime/module.h"

namespace cleave {

/// nullptr if there is none yet.
const Kernel* find_loaded(const GemmConfig& config, int device);

/// `kernel` stays for as long as the process does.
void add_loaded(const GemmConfig& config, int device, const Kernel& kernel);

}  // namespace cleave

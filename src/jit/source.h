// The translation unit of a kernel: its configuration as a constant, and its entry point.
#pragma once

#include <string>

#include "cleave/config/gemm_config.h"
#include "cleave/core/api.h"

namespace cleave {

/// The name of every kernel's entry point.
inline constexpr const char* gemm_entry = "cleave_gemm";

/// What NVRTC compiles for `config`. Equal configurations give equal text, since the text is part
/// of the cache key.
CLEAVE_TOOLS std::string gemm_source(const GemmConfig& config);

}  // namespace cleave

// The translation unit of a kernel of kernels/cleave/moe: its configuration as a constant, and its
// entry point.
#pragma once

#include <string>

#include "cleave/moe/moe_config.h"

namespace cleave {

/// The kernels; each has a header of its name.
enum class MoeKernel { count, rank, invert, scatter, combine, combine_backward };

const char* to_string(MoeKernel kernel);

/// The name of every kernel's entry point.
inline constexpr const char* moe_entry = "cleave_moe";

/// What NVRTC compiles. Equal configurations give equal text, since the text is part of the cache
/// key.
std::string moe_source(MoeKernel kernel, const MoeConfig& config);

}  // namespace cleave

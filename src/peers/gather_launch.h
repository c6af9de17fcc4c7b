// The kernel that gathers, and of nothing is a barrier.
#pragma once

#include <string>

#include "cleave/peers/gather_config.h"
#include "runtime/module.h"

namespace cleave {

inline constexpr const char* gather_entry = "cleave_gather";

/// What NVRTC compiles.
std::string translation_unit(const GatherConfig& config);

/// Pieces as large as the address of `out` and the bytes of a rank allow.
GatherConfig gather_config(size_t bytes, const void* out);

/// Without the meeting. `bytes`: of each of `ranks`.
GatherParams gather_params(const GatherConfig& config, int ranks, uint64_t offset, size_t bytes, void* out);

/// As many CTAs on each rank, since they meet: whatever the address of its `out`.
LaunchShape gather_shape(int ranks, size_t bytes);

}  // namespace cleave

// Which kernels a GPU runs for a problem, and how the work is dealt to their threads.
#pragma once

#include <string>
#include <vector>

#include "cleave/moe.h"
#include "cleave/moe/moe_config.h"
#include "cleave/moe/moe_params.h"
#include "runtime/kernel_sequence.h"

namespace cleave {

/// The kernels; each has a header of its name in kernels/cleave/moe.
enum class MoeKernel { count, rank, invert, scatter, quantize, combine, combine_backward };

/// The name of every kernel's entry point.
inline constexpr const char* moe_entry = "cleave_moe";

/// What NVRTC compiles.
std::string translation_unit(MoeKernel kernel, const MoeConfig& config);

using MoeLaunch = KernelLaunch<MoeKernel, MoeConfig, MoeParams>;

/// In stream order. None where there is nothing to write. `problem` has passed `validate`.
std::vector<MoeLaunch> moe_launches(const MoeProblem& problem);

/// Elements in the workspace's second part: `positions`, then `counts`.
struct MoeScratch {
  size_t positions = 0, counts = 0;

  WorkspaceSize workspace() const {
    return {.counters = counts != 0 ? sizeof(ChunkCounters) : 0, .partials = (positions + counts) * sizeof(uint32_t)};
  }
};
MoeScratch moe_scratch(const std::vector<MoeLaunch>& launches);

}  // namespace cleave

// The kernel that adds partial results up, and without any is a barrier.
#pragma once

#include <string>
#include <vector>

#include "cleave/fold.h"
#include "cleave/peers/fold_config.h"
#include "cleave/peers/fold_params.h"
#include "runtime/kernel_sequence.h"

namespace cleave {

/// Kernels; each has a header of its name in kernels/cleave/peers.
enum class FoldKernel { fold };

/// The name of the kernel's entry point.
inline constexpr const char* fold_entry = "cleave_fold";

inline constexpr FoldConfig kBarrier{.ranks = 0};

/// What NVRTC compiles.
std::string translation_unit(FoldKernel kernel, const FoldConfig& config);

using FoldLaunch = KernelLaunch<FoldKernel, FoldConfig, FoldParams>;

LaunchShape fold_shape(uint32_t ctas);

/// `problem` has passed `validate`. As many CTAs on each rank of a group, since they meet: also on one without rows.
std::vector<FoldLaunch> fold_launches(const FoldProblem& problem);

}  // namespace cleave

// The kernel that adds partial results up.
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

/// What NVRTC compiles.
std::string translation_unit(FoldKernel kernel, const FoldConfig& config);

using FoldLaunch = KernelLaunch<FoldKernel, FoldConfig, FoldParams>;

/// `problem` has passed `validate`. As many CTAs on each rank of a group, since they meet: also on one without rows.
std::vector<FoldLaunch> fold_launches(const FoldProblem& problem);

}  // namespace cleave

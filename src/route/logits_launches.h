// The kernel that a GPU runs for a problem.
#pragma once

#include <string>
#include <vector>

#include "cleave/route/logits_config.h"
#include "cleave/route/logits_params.h"
#include "cleave/router_logits.h"
#include "runtime/kernel_sequence.h"

namespace cleave {

/// Kernels; each has a header of its name in kernels/cleave/route.
enum class LogitsKernel { logits };

/// The name of the kernel's entry point.
inline constexpr const char* logits_entry = "cleave_router_logits";

/// What NVRTC compiles.
std::string translation_unit(LogitsKernel kernel, const LogitsConfig& config);

using LogitsLaunch = KernelLaunch<LogitsKernel, LogitsConfig, LogitsParams>;

/// None without logits. `problem` has passed `validate`.
std::vector<LogitsLaunch> logits_launches(const RouterLogitsProblem& problem);

}  // namespace cleave

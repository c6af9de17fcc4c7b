// The kernel that a GPU runs for a problem.
#pragma once

#include <string>
#include <vector>

#include "cleave/lora.h"
#include "cleave/lora/lora_config.h"
#include "cleave/lora/lora_params.h"
#include "runtime/kernel_sequence.h"

namespace cleave {

/// Kernels; each has a header of its name in kernels/cleave/lora.
enum class LoraKernel { lora };

/// The name of the kernel's entry point.
inline constexpr const char* lora_entry = "cleave_lora";

/// What NVRTC compiles.
std::string translation_unit(LoraKernel kernel, const LoraConfig& config);

using LoraLaunch = KernelLaunch<LoraKernel, LoraConfig, LoraParams>;

/// None without rows or outputs. `problem` has passed `validate`.
std::vector<LoraLaunch> lora_launches(const LoraProblem& problem, int compute_capability);

}  // namespace cleave

// Which kernels a GPU runs for a problem, and how its groups are dealt to their threads.
#pragma once

#include <string>
#include <vector>

#include "cleave/device.h"
#include "cleave/quantize.h"
#include "cleave/quantize/quantize_config.h"
#include "cleave/quantize/quantize_params.h"
#include "runtime/kernel_sequence.h"

namespace cleave {

/// The kernels; each has a header of its name in kernels/cleave/quantize.
enum class QuantizeKernel {
  quantize_rows,
  quantize_normed,
  measure,
  measure_normed,
  find_norms,
  quantize_tiles,
  find_bands
};

/// The name of every kernel's entry point.
inline constexpr const char* quantize_entry = "cleave_quantize";

/// What NVRTC compiles.
std::string translation_unit(QuantizeKernel kernel, const QuantizeConfig& config);

using QuantizeLaunch = KernelLaunch<QuantizeKernel, QuantizeConfig, QuantizeParams>;

/// In stream order: one, or two, to find and apply the scale of a whole tensor, or to find where
/// groups lie and quantise them. None where there is nothing to write. `problem` has passed
/// `validate`.
std::vector<QuantizeLaunch> quantize_launches(const QuantizeProblem& problem, const DeviceInfo& device);

/// What they need beside the arguments.
WorkspaceSize quantize_workspace(const std::vector<QuantizeLaunch>& launches);

}  // namespace cleave

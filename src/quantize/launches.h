// Which kernels a GPU runs for a problem, and how its groups are dealt to their threads.
#pragma once

#include <vector>

#include "cleave/device.h"
#include "cleave/quantize.h"
#include "cleave/quantize/quantize_params.h"
#include "quantize/source.h"

namespace cleave {

struct QuantizeLaunch {
  QuantizeKernel kernel = QuantizeKernel::rows;
  QuantizeConfig config;
  QuantizeParams params;  // but for the pointers
  uint32_t blocks = 0, threads = 0;
};

/// In stream order: one, or two, to find and apply the scale of a whole tensor, or to find where
/// groups lie and quantise them. None where there is
/// nothing to write. `problem` has passed `validate`.
std::vector<QuantizeLaunch> quantize_launches(const QuantizeProblem& problem,
                                              const DeviceInfo& device);

}  // namespace cleave

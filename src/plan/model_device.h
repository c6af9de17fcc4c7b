// Devices to plan for without having them.
#pragma once

#include <string>
#include <vector>

#include "cleave/core/api.h"
#include "cleave/device.h"

namespace cleave {

/// What kernels are compiled for without a device: "sm_80", "sm_90a".
CLEAVE_TOOLS std::vector<std::string> model_architectures();

/// A stand-in for the smallest device of one of them, as far as planning and compiling are concerned.
/// Throws Error(invalid_argument) for what is none.
CLEAVE_TOOLS DeviceInfo model_device(const std::string& arch);

}  // namespace cleave

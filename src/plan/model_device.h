// Devices to plan for without having them.
#pragma once

#include <string>

#include "cleave/core/api.h"
#include "cleave/device.h"

namespace cleave {

/// A stand-in for the smallest device of an architecture, as far as planning and compiling are
/// concerned. Throws Error(invalid_argument) for what is neither "sm_80" nor "sm_90a".
CLEAVE_TOOLS DeviceInfo model_device(const std::string& arch);

}  // namespace cleave

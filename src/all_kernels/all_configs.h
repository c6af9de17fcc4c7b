// Every kernel, for `cleave compile` and the tests that compile them.
#pragma once

#include <vector>

#include "cleave/config/gemm_config.h"
#include "cleave/core/api.h"
#include "cleave/device.h"

namespace cleave {

/// One configuration of every kernel that candidates() can name on `device`.
CLEAVE_TOOLS std::vector<GemmConfig> all_configs(const DeviceInfo& device);

}  // namespace cleave

// How many clusters a GPU runs at once, which no data sheet says.
#pragma once

#include <cstdint>

#include "cleave/device.h"

namespace cleave {

/// Clusters of `size` CTAs that run at the same time.
double resident_clusters(uint32_t size, const DeviceInfo& device);

}  // namespace cleave

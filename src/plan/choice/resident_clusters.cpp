#include "plan/choice/resident_clusters.h"

#include <algorithm>
#include <cmath>

namespace cleave {

double resident_clusters(uint32_t size, const DeviceInfo& device) {
  // A cluster lies in one GPC, and GPCs have 14 to 18 working SMs, differently on every chip: these are one
  // H100's, as cuOccupancyMaxActiveClusters gave them, and an H200 that was measured has the same.
  constexpr uint8_t h100[] = {132, 66, 39, 30, 22, 17, 15, 15, 9, 7, 7, 7, 7, 7, 7, 7};
  return std::max(1.0, std::floor(h100[size - 1] * (device.num_sms / 132.0)));
}

}  // namespace cleave

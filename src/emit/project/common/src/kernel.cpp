#include "kernel.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "config.h"

namespace emitted::operation {

const Kernel* find_kernel(int major, int minor, bool of_rest) {
  std::string archs;
  for (const Kernel& kernel : kKernels) {
    if (kernel.of_rest != of_rest) continue;
    if (major == kernel.major && (kernel.any_minor || minor == 0)) return &kernel;
    archs += (archs.empty() ? "" : ", ") + std::string(kernel.arch);
  }
  if (of_rest) return nullptr;
  throw std::runtime_error("the GPU has compute capability " + std::to_string(major) + "." + std::to_string(minor) +
                           "; this operation is for " + archs + ". Emit it for this GPU, too");
}

uint32_t find_slices(const Kernel& kernel, const cleave::GemmTiles& tiles, uint32_t num_sms) {
  if (kernel.config.schedule.in_turn && kernel.config.schedule.turns == 1)
    return std::max(std::min(kernel.slices, tiles.k_blocks), 1u);
  if (!cleave::is_sliced(kernel.config.schedule.split)) return kernel.slices;
  const uint64_t units = std::max<uint64_t>(kernel.units, num_sms);
  const uint64_t fill = units / std::max<uint64_t>(tiles.total, 1);
  const uint32_t together = cleave::slices_together(kernel.config);
  const uint64_t most = std::min<uint64_t>({kernel.slices, fill, tiles.k_blocks});
  return std::max(uint32_t(most / together * together), together);
}

}  // namespace emitted::operation

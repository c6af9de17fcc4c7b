#include "peers/block.h"

#include "cleave/problem.h"
#include "peers/device_block.h"
#include "peers/host_block.h"

namespace cleave {

std::unique_ptr<Block> make_block(int device, size_t bytes) {
  if (device == kCpu) return std::make_unique<HostBlock>(bytes);
  return std::make_unique<DeviceBlock>(device, bytes);
}

std::unique_ptr<Block> map_block(int device, const Descriptor& from, size_t bytes) {
  if (device == kCpu) return std::make_unique<HostBlock>(from, bytes);
  return std::make_unique<DeviceBlock>(device, from, bytes);
}

}  // namespace cleave

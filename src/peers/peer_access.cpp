#include "peers/peer_access.h"

#include <sstream>

#include "base/refuse.h"
#include "cleave/device.h"
#include "cleave/problem.h"
#include "runtime/driver.h"

namespace cleave {
namespace {

struct Place {
  std::string host, device, bytes;

  explicit Place(const std::string& text) { std::istringstream(text) >> host >> device >> bytes; }
};

CUdevice handle_of(int device) {
  CUdevice handle = 0;
  check(driver().device_get(&handle, device), "cuDeviceGet");
  return handle;
}

}  // namespace

std::string uuid_of(int device) {
  CUuuid uuid{};
  check(driver().device_get_uuid(&uuid, handle_of(device)), "cuDeviceGetUuid");
  std::string text;
  for (const char byte : uuid.bytes) text += fmt::format("{:02x}", uint8_t(byte));
  return text;
}

void check_access(int device, const std::string& own, const std::string& theirs, int rank) {
  const Place here(own), there(theirs);
  if (here.host != there.host) refuse(ErrorCode::unsupported, "rank {} is on another host", rank);
  if (here.bytes != there.bytes)
    refuse_value("bytes make blocks of {} here and of {} on rank {}; they must be the same on all ranks", here.bytes,
                 there.bytes, rank);
  if ((here.device == "cpu") != (there.device == "cpu"))
    refuse_value("device is {} here and {} on rank {}; GPUs and the host share nothing", here.device, there.device,
                 rank);
  if (device == kCpu || here.device == there.device) return;
  for (int other = 0; other < device_count(); ++other) {
    if (uuid_of(other) != there.device) continue;
    int can = 0;
    check(driver().device_can_access_peer(&can, handle_of(device), handle_of(other)), "cuDeviceCanAccessPeer");
    if (!can)
      refuse(ErrorCode::unsupported, "device {} ({}) cannot read the memory of rank {}'s device {}", device,
             device_info(device).name, rank, other);
  }
}

}  // namespace cleave

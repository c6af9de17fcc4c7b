// Work that is ordered: what one stream runs, or what it adds to one captured graph.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "runtime/context.h"
#include "runtime/driver.h"

namespace cleave {

/// `stream` identifies a stream for the life of the process, unlike a handle, which the driver reuses once its stream
/// is destroyed although work of that stream may still run. In a capture it is the handle: a capturing stream may not
/// be asked for its number, and lives as long as the capture.
struct OrderedWork {
  int device = 0;
  uint64_t stream = 0;
  uint64_t capture = 0;  ///< 0: not captured

  friend bool operator==(const OrderedWork&, const OrderedWork&) = default;
};

/// What `stream`, of that device, is given now is of. Throws Error(capture) for a broken capture.
inline OrderedWork ordered_work(int device, CUstream stream) {
  const uint64_t capture = capture_id(stream);
  if (capture != 0) return {.device = device, .stream = reinterpret_cast<uint64_t>(stream), .capture = capture};
  unsigned long long number = 0;
  check(driver().stream_get_id(stream, &number), "cuStreamGetId");
  return {.device = device, .stream = number};
}

}  // namespace cleave

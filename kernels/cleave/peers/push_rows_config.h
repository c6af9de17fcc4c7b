// What is fixed when the kernel that pushes is compiled, and its argument, filled by the host for each launch and
// passed as a __grid_constant__.
#pragma once

#include "cleave/peers/meeting_params.h"

namespace cleave {

inline constexpr uint32_t kPushedParts = 2;  // a matrix, and its scales

struct PushRowsConfig {
  uint32_t bytes = 16;                      // of a piece of the first part: 16, 4 or 1
  uint32_t second_bytes = 0;                // and of the second; 0: there is none
  bool keeps = false;                       // all ranks' is copied to `out` behind the meeting
  static constexpr uint32_t threads = 256;  // of a CTA

  CLEAVE_HD friend constexpr bool operator==(const PushRowsConfig&, const PushRowsConfig&) = default;
};

struct PushedRows {
  const char* own = nullptr;
  uint64_t own_bytes = 0;
  uint64_t share_bytes = 0;  // from one rank's to the next one's
  uint64_t offset = 0;       // of rank 0's in each rank's block
  uint64_t chunk = 0;        // of a share, a CTA's bytes: whole pieces of whatever size, the same on all ranks
  char* out = nullptr;
};

struct PushRowsParams {
  MeetingParams meeting;
  PushedRows parts[kPushedParts];
};

}  // namespace cleave

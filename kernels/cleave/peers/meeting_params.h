// What a launch needs to meet those of the other ranks, filled by the host.
#pragma once

#include "cleave/peers/arrival.h"

namespace cleave {

struct MeetingParams {
  GroupHeader* headers[kMostRanks] = {};  // of the ranks, as they are mapped here
  GroupRecord* record = nullptr;          // of the host's memory
  uint64_t timeout = 0;                   // nanoseconds
  uint32_t rank = 0, size = 1;            // one rank meets nobody
  uint32_t signature = 0;
  uint32_t first = 0;  // the number of the first CTA's meeting
};

}  // namespace cleave

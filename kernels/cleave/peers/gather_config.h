// What is fixed when the kernel that gathers is compiled, and its argument, filled by the host for each launch and
// passed as a __grid_constant__.
#pragma once

#include "cleave/core/fast_divmod.h"
#include "cleave/peers/meeting_params.h"

namespace cleave {

struct GatherConfig {
  uint32_t bytes = 16;     // of a piece: 16, 4 or 1
  uint32_t threads = 256;  // of a CTA; of a barrier's 32, which find room beside a product's

  CLEAVE_HD friend constexpr bool operator==(const GatherConfig&, const GatherConfig&) = default;
};

struct GatherParams {
  MeetingParams meeting;
  uint32_t pieces = 0;  // of all ranks
  FastDivmod rank;      // pieces of one
  uint64_t offset = 0;  // of them in each rank's block
  void* out = nullptr;
};

}  // namespace cleave

// From the slot of every row to the row of every slot.
#pragma once

#include "cleave/moe/moe_config.h"
#include "cleave/moe/moe_params.h"
#include "cleave/ptx/sync.h"

namespace cleave {

template <MoeConfig C>
CLEAVE_DEVICE void invert(const MoeParams& p) {
  ptx::launch_dependents();
  ptx::grid_dependency_wait();
  const uint32_t row = blockIdx.x * kRowThreads + threadIdx.x;
  if (row >= p.slots) return;
  const Signed slot(p.indices[row]);
  if (slot.index < p.slots) p.positions[slot.index] = signed_index(row, slot.dropped);
}

}  // namespace cleave

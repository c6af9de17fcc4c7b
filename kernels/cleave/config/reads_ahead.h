// How far ahead of its use an epilogue asks for what it reads for each element of D.
#pragma once

#include "cleave/config/output.h"
#include "cleave/config/threads.h"

namespace cleave {

/// Blocks whose inputs so many registers hold, a power of two.
CLEAVE_HD constexpr uint32_t blocks_within(const GemmConfig& c, uint32_t registers) {
  uint32_t of_a_block = 0;
  for (uint32_t i = 0; i != epilogue_inputs(c); ++i) {
    const FunctionOperandConfig o = epilogue_input(c, i);
    if (is_by_element(c, i)) of_a_block += o.pairs && size_of(o.dtype) <= 2 ? 2 : 4;
  }
  uint32_t blocks = 1;
  while (of_a_block > 0 && blocks < 16 && 2 * blocks * of_a_block <= registers) blocks *= 2;
  return blocks;
}

/// Blocks that a tile's epilogue asks for at once, before the first of them is needed, each time for one trip to
/// memory: Hopper's consumers have as many registers for them as accumulators, up to 64 of these.
CLEAVE_HD constexpr uint32_t blocks_ahead(const GemmConfig& c) {
  const uint32_t sums = accumulators_per_thread(c);
  return blocks_within(c, !has_wgmma(c.family) || sums > 96 ? 16 : sums > 64 ? 32 : 64);
}

}  // namespace cleave

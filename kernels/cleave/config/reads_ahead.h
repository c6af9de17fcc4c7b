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

/// Blocks that are asked for at once beside whatever accumulators: with C the fewest beside two waves of them.
CLEAVE_HD constexpr uint32_t blocks_beside_sums(const GemmConfig& c) {
  return blocks_within(c, c.epilogue.has_c && has_two_waves(c) ? 8 : 16);
}

/// Blocks that a tile's epilogue asks for at once, before the first of them is needed, each time for one trip to
/// memory. C alone gets most registers where a Hopper kernel's consumers have few accumulators.
CLEAVE_HD constexpr uint32_t blocks_ahead(const GemmConfig& c) {
  const uint32_t sums = accumulators_per_thread(c);
  const bool only_c = c.epilogue.has_c && !c.epilogue.function.given;
  if (!only_c || !has_wgmma(c.family) || has_two_waves(c) || sums > 96) return blocks_beside_sums(c);
  return blocks_within(c, sums > 64 ? 32 : 64);
}

}  // namespace cleave

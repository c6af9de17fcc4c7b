// How many registers promotion (promotion.h) takes: the planner needs to know which tiles can have
// it, and the mainloop in how many parts.
#pragma once

#include "cleave/kernel/gemm_config.h"

namespace cleave {

/// Blocks of 128 columns that a tile touches, wherever on its own grid it starts.
CLEAVE_HD constexpr uint32_t touched_blocks(uint32_t tile_n) {
  return ceil_div(128 - greatest_common_divisor(tile_n, 128u) + tile_n, 128u);
}

/// Registers of a Hopper consumer's mainloop with `parts` sums of 64 rows, each with its scales,
/// beside the float32 ones.
CLEAVE_HD constexpr uint32_t promotion_registers(const GemmConfig& c, uint32_t parts) {
  uint32_t lines = 0;
  if (c.scaling == Scaling::block) {
    lines += c.tile_m / (math_threads(c) / 128) / 64 * (c.scale_rows_a == 1 ? 2 : 1);
    lines += c.scale_rows_b == 1 ? c.tile_n / 4 : touched_blocks(c.tile_n);
  }
  return accumulators_per_thread(c) + parts * (c.tile_n / 2 + lines);
}

/// What a thread can spare for them, of 232 registers with two consumers, or 255 with one.
inline constexpr uint32_t kPromotionRegisters = 200;

}  // namespace cleave

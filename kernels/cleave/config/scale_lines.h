// The scales of one k block, as they lie in its stage: those of the tile's rows, then those of its columns, one a line,
// or one per 128 lines; under a gate those of the gate's columns, then the up's. And what they cost in registers, which
// the planner needs to know.
#pragma once

#include "cleave/config/gemm_config.h"
#include "cleave/config/output.h"
#include "cleave/config/threads.h"

namespace cleave {

/// Blocks of 128 columns that a tile touches, wherever on its own grid it starts.
CLEAVE_HD constexpr uint32_t touched_blocks(uint32_t tile_n) {
  return ceil_div(kScaleBlock - greatest_common_divisor(tile_n, kScaleBlock) + tile_n, kScaleBlock);
}

CLEAVE_HD constexpr uint32_t scale_lines_a(const GemmConfig& c) {
  return ceil_div(c.tile.m, c.scales.rows_a);
}
CLEAVE_HD constexpr uint32_t scale_lines_b(const GemmConfig& c) {
  const uint32_t pieces = gated(c) ? 2 : 1;
  return c.scales.rows_b == 1 ? c.tile.n : pieces * touched_blocks(output_columns(c));
}

/// Index of the first of B's; even, since columns are read in pairs.
CLEAVE_HD constexpr uint32_t scale_lines_b_at(const GemmConfig& c) {
  return round_up(scale_lines_a(c), 2u);
}

/// Whether the scales of a thread's two rows lie side by side, so that it reads both at once (Fragment).
CLEAVE_HD constexpr bool pairs_scales_of_rows(const GemmConfig& c) {
  return c.scales.rows_a == 1 && c.scales.rows_b != 1 && has_wgmma(c.family) && !gates_rows(c);
}
/// Where the scale of A's line lies among them.
CLEAVE_HD constexpr uint32_t scale_place_a(const GemmConfig& c, uint32_t line) {
  return pairs_scales_of_rows(c) ? line / 16 * 16 + line % 8 * 2 + line / 8 % 2 : line;
}

/// Bytes in one stage.
CLEAVE_HD constexpr uint32_t scale_stage_bytes(const GemmConfig& c) {
  if (c.epilogue.scaling != Scaling::block) return 0;
  return round_up((scale_lines_b_at(c) + scale_lines_b(c)) * 4, 16u);
}

/// Registers of a Hopper consumer's sums, with `parts` sums of 64 rows (of half the columns, if those take turns)
/// beside the float32 ones; and what it takes to scale each on its own, and to convert integers.
CLEAVE_HD constexpr uint32_t promotion_registers(const GemmConfig& c, uint32_t parts) {
  const bool scaled_singly = c.epilogue.scaling == Scaling::block && c.scales.rows_a == 1 && c.scales.rows_b == 1;
  const uint32_t part = c.tile.n / (multiplies_halves(c) ? 4 : 2);
  return accumulators_per_thread(c) + parts * part + (scaled_singly ? 12 : 0) + (c.operands.a == DType::i8 ? 12 : 0);
}

/// What a thread can spare for them.
CLEAVE_HD constexpr uint32_t spare_registers(const GemmConfig& c) {
  return min_of(consumer_registers(c), 224u) - 18;
}

/// Whether a thread reads the scales of its columns before their k block is multiplied, and holds them, so that the
/// stage is handed back right behind that. It pays where products are deep (docs/notes/2026-11-grouped-gemm.md),
/// which those are whose sums are added; a second part would take these registers.
CLEAVE_HD constexpr bool holds_columns(const GemmConfig& c) {
  return may_load_scale_lines(c) && !has_two_waves(c) && promotion_registers(c, 1) + c.tile.n / 4 <= spare_registers(c);
}

/// Whether a warpgroup multiplies one part of its sums while it adds another.
CLEAVE_HD constexpr bool promotes_two_parts(const GemmConfig& c) {
  return !holds_columns(c) && c.tile.m == 64 * (c.warps.pingpong ? 1 : c.warps.consumers) &&
         promotion_registers(c, 2) <= spare_registers(c);
}

}  // namespace cleave

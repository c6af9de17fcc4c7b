// What a tile makes of D, and what its epilogue reads for it.
#pragma once

#include "cleave/config/gemm_config.h"

namespace cleave {

/// Whether two columns of the product make one of D. The tile's left half are then columns of the
/// gate projection, its right half those of the up projection that go with them.
CLEAVE_HD constexpr bool gated(const GemmConfig& c) {
  return c.epilogue.function.gated && !has_weights(c);
}
/// The same of two rows, eight apart, as a packed weight has them on A's place (memory/weight_layout.h). A block of a
/// thread's accumulators (tile/fragment.h) has both.
CLEAVE_HD constexpr bool gates_rows(const GemmConfig& c) {
  return c.epilogue.function.gated && has_weights(c);
}

/// What the epilogue reads: the inputs of its function and, after them, C.
CLEAVE_HD constexpr uint32_t epilogue_inputs(const GemmConfig& c) {
  return c.epilogue.function.inputs + c.epilogue.has_c;
}
CLEAVE_HD constexpr FunctionOperandConfig epilogue_input(const GemmConfig& c, uint32_t input) {
  const EpilogueConfig& e = c.epilogue;
  if (input < e.function.inputs) return e.function.input(input);
  return {InputShape::matrix, e.c, e.order, e.c_pairs};
}

/// Bytes of C that the epilogue loads at once.
CLEAVE_HD constexpr uint32_t load_bytes_c(const GemmConfig& c) {
  return size_of(c.epilogue.c) * (c.epilogue.c_pairs ? 2 : 1);
}

/// Whether an input of the epilogue is read for each element: a matrix, or, where a tile's row is several of D, what
/// those bring.
CLEAVE_HD constexpr bool is_by_element(const GemmConfig& c, uint32_t input) {
  const InputShape shape = epilogue_input(c, input).shape;
  return shape == InputShape::matrix || (c.conv.fuses_classes && shape == InputShape::column);
}

/// Such inputs among the first `among`, or of all.
CLEAVE_HD constexpr uint32_t inputs_by_element(const GemmConfig& c, uint32_t among) {
  uint32_t found = 0;
  for (uint32_t i = 0; i < among; ++i) found += is_by_element(c, i);
  return found;
}
CLEAVE_HD constexpr uint32_t inputs_by_element(const GemmConfig& c) {
  return inputs_by_element(c, epilogue_inputs(c));
}

/// Rows of D that a tile covers, and columns.
CLEAVE_HD constexpr uint32_t output_rows(const GemmConfig& c) {
  return gates_rows(c) ? c.tile.m / 2 : c.tile.m;
}
CLEAVE_HD constexpr uint32_t output_columns(const GemmConfig& c) {
  return gated(c) ? c.tile.n / 2 : c.tile.n;
}

/// Columns of those 128 that share a scale of D's which one CTA has: all, or half, and its neighbour in a cluster has
/// the rest.
CLEAVE_HD constexpr uint32_t scale_columns(const GemmConfig& c) {
  return min_of(output_columns(c), kScaleBlock);
}
CLEAVE_HD constexpr bool pairs_scales(const GemmConfig& c) {
  return c.epilogue.has_scale_out && scale_columns(c) < kScaleBlock;
}

/// Blocks of accumulators (fragment.h) that are finished together: of the columns that share a scale of D's.
CLEAVE_HD constexpr uint32_t blocks_finished_together(const GemmConfig& c) {
  return c.epilogue.has_scale_out ? scale_columns(c) / 8 : 1;
}

/// Whether the halves of a tile's columns, the gate's and the up's, multiply one after the other: beside the promoted
/// sums of a tile that is wide enough for 128 columns of D there is no room for a part of both.
CLEAVE_HD constexpr bool multiplies_halves(const GemmConfig& c) {
  return c.scales.promote && gated(c) && c.tile.n == 256 &&
         (c.epilogue.has_scale_out || c.epilogue.scaling == Scaling::block);
}

/// Whether a tile's rows may end before those of D: at a group's end, or a line's.
CLEAVE_HD constexpr bool ends_rows_early(const GemmConfig& c) {
  return c.schedule.grouping == Grouping::m || c.schedule.grouping == Grouping::classes ||
         c.direct.method == DirectMethod::windows;
}

/// Whether neighbours among a tile's rows are none in D.
CLEAVE_HD constexpr bool scatters(const GemmConfig& c) {
  return c.schedule.grouping == Grouping::classes || c.conv.fuses_classes;
}

/// Whether what finishes a tile has no registers for the accumulators beside its own, though it has used them: what
/// looks for the largest of D, or has many slices' partials on their way.
CLEAVE_HD constexpr bool forgets_sums(const GemmConfig& c) {
  return c.epilogue.has_scale_out || c.epilogue.has_amax || c.schedule.split == SplitKMode::parallel;
}

/// Whether TMA sees all of D as a matrix.
CLEAVE_HD constexpr bool has_map_d(const GemmConfig& c) {
  return (c.store.by_tma || c.store.adds) && !scatters(c);
}

/// Whether D leaves through shared memory.
CLEAVE_HD constexpr bool stages_output(const GemmConfig& c) {
  return c.store.by_tma || c.store.run_bytes > 0 || c.store.adds;
}

/// Whether each column has a scale, in the epilogue.
CLEAVE_HD constexpr bool scales_columns(const GemmConfig& c) {
  return c.epilogue.scaling == Scaling::vector && c.epilogue.scaled_columns;
}

/// Values that each column brings to the epilogue: scale, bias, zero point, a function's inputs.
CLEAVE_HD constexpr uint32_t column_broadcast_values(const GemmConfig& c) {
  return scales_columns(c) + (c.epilogue.bias == Bias::row) + c.epilogue.has_zero +
         c.epilogue.function.count(InputShape::row);
}

}  // namespace cleave

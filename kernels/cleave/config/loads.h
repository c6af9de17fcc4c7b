// How a kernel's operands come in: what TMA sees as a matrix, what threads copy, and what a stage has room for.
#pragma once

#include "cleave/config/gemm_config.h"
#include "cleave/memory/descriptor.h"

namespace cleave {

/// Elements of one 128-byte row of shared memory: the swizzle atom's width and the unit that
/// tile.k comes in.
CLEAVE_HD constexpr uint32_t atom_elements(DType t) {
  return 128 / size_of(t);
}

/// Whether three warps of the Hopper kernel's last warpgroup copy a matrix, beside TMA.
CLEAVE_HD constexpr bool copies_narrow(const GemmConfig& c) {
  return c.operands.copied_a || c.operands.copied_b;
}

/// Whether a list names A's rows (B's columns).
CLEAVE_HD constexpr bool lists_a(const GemmConfig& c) {
  return c.operands.listed && c.schedule.grouping == Grouping::m;
}
CLEAVE_HD constexpr bool lists_b(const GemmConfig& c) {
  return c.operands.listed && c.schedule.grouping == Grouping::n;
}

/// Whether threads of the producer warpgroup copy beside the lane that asks TMA: scales, of blocks or of weights, a
/// narrow operand, or one whose rows a list names.
CLEAVE_HD constexpr bool copies_beside(const GemmConfig& c) {
  return c.epilogue.scaling == Scaling::block || has_weights(c) || copies_narrow(c) || c.operands.listed;
}

/// Whether a lane may load the scales of a k block instead, by a bulk copy of A's and one of B's, where a launch's lie
/// side by side (has_whole_scale_lines).
CLEAVE_HD constexpr bool may_load_scale_lines(const GemmConfig& c) {
  return c.store.adds && c.epilogue.scaling == Scaling::block && c.scales.rows_a == 1 && c.scales.rows_b == 1;
}

/// How many do, and ask for a tile's C (config/staged_c.h); packed weights have a warp of their own.
CLEAVE_HD constexpr uint32_t threads_beside(const GemmConfig& c) {
  return has_weights(c) ? 64 : 96;
}

/// Whether A (or B) are pixels of a tensor, each as often as a tap lands on it.
CLEAVE_HD constexpr bool gathers_a(const GemmConfig& c) {
  return c.conv.kind != Conv::none && gathers_a(c.conv.kind) != c.conv.turned;
}
CLEAVE_HD constexpr bool gathers_b(const GemmConfig& c) {
  return c.conv.kind != Conv::none && !gathers_a(c);
}

/// Whether these pixels are rows of the product (turned: columns), and K its taps: else they are K.
CLEAVE_HD constexpr bool has_taps_along_k(const GemmConfig& c) {
  return gathers_a(c.conv.kind);
}

/// Rows (columns) of a tile that are gathered: pixels, or, of weight gradients, channels of taps; and how many CTAs
/// share them.
CLEAVE_HD constexpr uint32_t pixels_of_tile(const GemmConfig& c) {
  return gathers_a(c) ? c.tile.m : c.tile.n;
}
CLEAVE_HD constexpr uint32_t sharers_of_pixels(const GemmConfig& c) {
  return gathers_a(c) ? c.cluster.multicast_n : c.cluster.multicast_m;
}

/// Whether threads of the Hopper kernel put together vectors of 16 bytes of what is aligned to less.
CLEAVE_HD constexpr bool copies_unaligned(const GemmConfig& c) {
  return c.conv.gather && (gathers_a(c) ? c.operands.load_bytes_a : c.operands.load_bytes_b) < 16;
}

/// Whether B is a matrix as it lies in memory: filters that no class has its own taps of.
CLEAVE_HD constexpr bool has_plain_filters(const GemmConfig& c) {
  return c.conv.kind == Conv::fprop || c.conv.patches;
}

/// Whether threads of the Hopper kernel copy a convolution's filters, which TMA cannot read
/// as a matrix: rows of any length, or taps of a class without a gap, or those of all classes.
CLEAVE_HD constexpr bool copies_filters(const GemmConfig& c) {
  return c.conv.gather && (c.conv.kind == Conv::dgrad || (c.conv.kind == Conv::fprop && copies_unaligned(c)));
}

/// Whether K runs over taps and channels without a gap; else every tap begins a k block.
CLEAVE_HD constexpr bool flattens_taps(const GemmConfig& c) {
  return !has_tma(c.family) || (c.conv.gather && !c.conv.fuses_classes);
}

/// Elements of what TMA brings of a pixel at once: a swizzle atom of channels, or half of one. With halves no more of
/// a pixel of 96 channels than it has comes, and K (wgrad: N) runs over the taps' halves without a gap.
CLEAVE_HD constexpr uint32_t pixel_line(const GemmConfig& c) {
  return atom_elements(c.operands.a) / (c.conv.half_lines ? 2 : 1);
}

/// K of a stage that one box of an operand has: where a k block has lines of several taps, a line's.
CLEAVE_HD constexpr uint32_t box_depth(const GemmConfig& c) {
  return c.conv.half_lines && has_taps_along_k(c) ? pixel_line(c) : c.tile.k;
}

/// Columns of B that a stage has room for. TMA brings a B that is contiguous along N in strips of a swizzle atom, or of
/// half of one where the tile ends with half a strip: the last one whole, though the tile may have only the first of
/// its columns.
CLEAVE_HD constexpr uint32_t stage_columns(const GemmConfig& c) {
  const bool in_strips = has_tma(c.family) && c.operands.b_major == Major::mn && !c.operands.copied_b;
  const uint32_t atom = atom_elements(c.operands.a), strip = c.tile.n % atom == atom / 2 ? atom / 2 : atom;
  return in_strips ? round_up(c.tile.n, strip) : c.tile.n;
}

/// Bytes of a row in a stage of A (B): of k's or, of an operand that is contiguous along M (N), of a strip.
CLEAVE_HD constexpr uint32_t line_bytes_of_a(const GemmConfig& c) {
  const bool halves = c.conv.half_lines && gathers_a(c);
  return halves ? 64 : line_bytes(c.operands.a_major, c.tile.m, c.operands.a);
}
CLEAVE_HD constexpr uint32_t line_bytes_of_b(const GemmConfig& c) {
  const bool halves = c.conv.half_lines && (gathers_b(c) || c.operands.b_major == Major::k);
  return halves ? 64 : line_bytes(c.operands.b_major, stage_columns(c), c.operands.b);
}

/// Whether TMA needs a map of A and one of B for each group.
CLEAVE_HD constexpr bool has_group_maps(const GemmConfig& c) {
  return has_tma(c.family) && c.schedule.apart;
}

/// Whether TMA sees A, or B, as a matrix.
CLEAVE_HD constexpr bool has_map_a(const GemmConfig& c) {
  return has_tma(c.family) && !gathers_a(c) && !c.operands.copied_a && !lists_a(c) && !has_weights(c);
}
CLEAVE_HD constexpr bool has_map_b(const GemmConfig& c) {
  return has_tma(c.family) && !gathers_b(c) && !copies_filters(c) && !c.operands.copied_b && !lists_b(c);
}

}  // namespace cleave

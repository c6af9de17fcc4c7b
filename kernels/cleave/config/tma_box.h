// How TMA sees the matrices: fixed by the host's tensor maps, relied on by the kernel's loads and
// stores.
#pragma once

#include "cleave/core/enums.h"
#include "cleave/memory/descriptor.h"
#include "cleave/schedule/groups.h"

namespace cleave {

/// Rows in one TMA box of an operand whose tile is shared by `sharers` CTAs (each loads its part for all) and comes in
/// `pieces` from different places.
CLEAVE_HD constexpr uint32_t box_rows(Major major, uint32_t tile_rows, uint32_t tile_k, uint32_t sharers,
                                      uint32_t pieces = 1) {
  return major == Major::k ? tile_rows / sharers / pieces : tile_k;
}

/// And elements of such a row, of an operand with `stage_rows` rows (columns) in a stage: fewer than 128 bytes of them
/// where those end with half a strip (stage_columns).
CLEAVE_HD constexpr uint32_t box_width(Major major, uint32_t stage_rows, DType type) {
  return line_bytes(major, stage_rows, type) / size_of(type);
}

/// A ragged map clips at the end of any group, not only at the matrix's, though it is one map for
/// all groups. A line has three coordinates, whose strides make the address of line `line` of the
/// matrix, within a group that ends at `end`,
///
///   (kRaggedExtent - (end - line)) * stride + end * stride + kRaggedExtent * (2^34 - stride)
///
/// which is line * stride modulo 2^64; and the first coordinate leaves its extent of kRaggedExtent
/// where the group ends. (Known from Triton's ragged descriptors.)
inline constexpr uint32_t kRaggedExtent = 1u << 30;
inline constexpr uint64_t kRaggedWrap = uint64_t(1) << 34;

struct RaggedLine {
  uint32_t line, end;

  /// Line `line_of_matrix`, of a group that ends at `group_end`.
  CLEAVE_HD constexpr RaggedLine(uint32_t group_end, uint32_t line_of_matrix)
      : line(kRaggedExtent - (group_end - line_of_matrix)), end(group_end) {}
};

/// Operands of groups of K that are contiguous along M or N have such a map.
CLEAVE_HD constexpr bool loads_ragged(Grouping grouping, Major major) {
  return grouping == Grouping::k && major == Major::mn;
}

/// And D, where its lines are grouped.
CLEAVE_HD constexpr bool stores_ragged(Grouping grouping, Order order) {
  return (grouping == Grouping::m && order == Order::row) || (grouping == Grouping::n && order == Order::column);
}

}  // namespace cleave

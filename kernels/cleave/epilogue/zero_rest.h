// Zeros for what of D belongs to no group, if the caller wants them: one line along the grouped
// dimension at a time, dealt to the blocks. Nobody else writes there, so it needs no order.
#pragma once

#include "cleave/kernel/gemm_params.h"

namespace cleave {

/// One line of D: a row where M is grouped, a column where N is.
template <GemmConfig C>
CLEAVE_DEVICE void zero_line(const EpilogueParams& p, uint32_t line, uint32_t thread) {
  constexpr bool kAlongRow = C.grouping == Grouping::m;
  constexpr bool kContiguous = kAlongRow == (C.d_order == Order::row);
  const uint32_t length = kAlongRow ? p.n : p.m;
  char* const d = static_cast<char*>(p.d) +
                  (kContiguous ? line * p.d_stride : int64_t(line)) * int64_t(size_of(C.d));
  constexpr uint32_t kPerPiece = kContiguous ? 16 / size_of(C.d) : 1;
  const bool pieces = kContiguous && (reinterpret_cast<uint64_t>(d) & 15) == 0;
  const uint32_t in_pieces = pieces ? length / kPerPiece : 0;
  for (uint32_t i = thread; i < in_pieces; i += math_threads(C))
    reinterpret_cast<uint4*>(d)[i] = make_uint4(0, 0, 0, 0);
  for (uint32_t i = in_pieces * kPerPiece + thread; i < length; i += math_threads(C))
    store_element(C.d, d, kContiguous ? int64_t(i) : i * p.d_stride, 0.0f);
}

/// By the math threads of all blocks.
template <GemmConfig C>
CLEAVE_DEVICE void zero_rest(const GemmParams& p, const GroupTable& groups, uint32_t thread) {
  if (!p.groups.zero_rest) return;
  // Cumulative ends leave no gaps.
  const bool gaps = p.groups.bounds != GroupBounds::ends;
  uint32_t begin = gaps ? 0 : groups.ranges[groups.count - 1].end;
  for (uint32_t g = gaps ? 0 : groups.count; g <= groups.count; ++g) {
    const uint32_t end = g < groups.count ? groups.ranges[g].begin : p.groups.extent;
    for (uint32_t line = begin + blockIdx.x; line < end; line += gridDim.x)
      zero_line<C>(p.epilogue, line, thread);
    if (g < groups.count) begin = max_of(begin, groups.ranges[g].end);
  }
}

}  // namespace cleave

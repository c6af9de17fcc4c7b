// Zeroes the parts of D, and of a function's other outputs, that belong to no group, if the caller asks for it. A warp
// takes 32 lines along the grouped dimension: each lane checks one of them, and together they clear those of no group.
// No other thread writes there, so no ordering is needed.
#pragma once

#include "cleave/config/gemm_params.h"
#include "cleave/config/threads.h"

namespace cleave {

/// One line of a matrix of D's shape, a row where M is grouped, a column where N is, by one warp.
template <GemmConfig C, DType T, Order O>
CLEAVE_DEVICE void zero_line(const GemmParams& p, void* matrix, int64_t stride, uint32_t line) {
  constexpr bool kAlongRow = C.schedule.grouping == Grouping::m;
  constexpr bool kContiguous = kAlongRow == (O == Order::row);
  const uint32_t lane = threadIdx.x % 32, length = kAlongRow ? p.size.n : p.size.m;
  char* const to = static_cast<char*>(matrix) + (kContiguous ? line * stride : int64_t(line)) * int64_t(size_of(T));
  constexpr uint32_t kPerPiece = 16 / size_of(T);
  const bool pieces = kContiguous && (reinterpret_cast<uint64_t>(to) & 15) == 0;
  const uint32_t in_pieces = pieces ? length / kPerPiece : 0;
  for (uint32_t i = lane; i < in_pieces; i += 32) reinterpret_cast<uint4*>(to)[i] = make_uint4(0, 0, 0, 0);
  for (uint32_t i = in_pieces * kPerPiece + lane; i < length; i += 32)
    store_element(T, to, kContiguous ? int64_t(i) : i * stride, 0.0f);
}

/// The same line of the outputs beside D, from output I.
template <GemmConfig C, uint32_t I = 0>
CLEAVE_DEVICE void zero_line_of_outputs(const GemmParams& p, uint32_t line) {
  if constexpr (I < C.epilogue.function.outputs) {
    constexpr FunctionOperandConfig kOutput = C.epilogue.function.output(I);
    if constexpr (kOutput.reduction == Reduction::none) {
      zero_line<C, kOutput.dtype, kOutput.order>(p, p.epilogue.outputs[I].data, p.epilogue.outputs[I].stride, line);
    }
    zero_line_of_outputs<C, I + 1>(p, line);
  }
}

/// The scales of a row that belongs to no group.
template <GemmConfig C>
CLEAVE_DEVICE void zero_scales(const GemmParams& p, uint32_t row) {
  for (uint32_t i = threadIdx.x % 32; i < ceil_div(p.size.n, kScaleBlock); i += 32)
    p.epilogue.scale_out[scale_out_offset(p.epilogue, row, i, 0)] = 0.0f;
}

/// By the math threads of all CTAs.
template <GemmConfig C>
CLEAVE_DEVICE void zero_rest(const GemmParams& p, const GroupTable& groups, uint32_t thread) {
  if (!p.groups.zero_rest) return;
  // Cumulative ends leave no gaps.
  const bool gaps = p.groups.bounds != GroupBounds::ends;
  const uint32_t begin = gaps ? 0 : groups.entries[groups.count - 1].range.end;
  const uint32_t warp = blockIdx.x * (math_threads(C) / 32) + thread / 32;
  const uint32_t step = gridDim.x * math_threads(C);
  for (uint32_t first = begin + warp * 32; first < p.groups.extent; first += step) {
    const uint32_t line = first + threadIdx.x % 32;
    bool nobodys = line < p.groups.extent;
    for (uint32_t g = 0; gaps && g < groups.count; ++g) {
      const GroupRange range = groups.entries[g].range;
      nobodys = nobodys && (line < range.begin || line >= range.end);
    }
    uint32_t mask = __ballot_sync(0xffffffffu, nobodys);
    for (; mask != 0; mask &= mask - 1) {
      const uint32_t found = first + __ffs(mask) - 1;
      zero_line<C, C.epilogue.d, C.epilogue.order>(p, p.epilogue.d, p.epilogue.d_stride, found);
      zero_line_of_outputs<C>(p, found);
      if constexpr (C.epilogue.has_scale_out) zero_scales<C>(p, found);
    }
  }
}

}  // namespace cleave

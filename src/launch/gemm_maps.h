// The shapes of the tensor maps of a TMA kernel's operands and of D: sizes, strides and boxes as
// cuTensorMapEncodeTiled takes them.
//
// Sizes and strides are read from the kernel's parameters.
#pragma once

#include <cstdint>

#include "cleave/epilogue/store_chunk.h"
#include "cleave/kernel/gemm_params.h"
#include "cleave/mainloop/tma_box.h"

namespace cleave {

/// The contiguous dimension comes first. A row of the box is as wide as the swizzle: 32, 64 or 128
/// bytes.
struct GemmMap {
  DType dtype = DType::bf16;
  uint32_t rank = 3;
  uint64_t size[4] = {1, 1, 1, 1};
  uint64_t stride_bytes[4] = {};  ///< [0] is not used
  uint32_t box[4] = {1, 1, 1, 1};
};

namespace detail {

/// A matrix with a contiguous dimension of `across` elements and `down` lines, batched unless its
/// batch stride is 0.
inline GemmMap gemm_map(DType dtype, uint64_t across, uint64_t down, int64_t stride,
                        int64_t batch_stride, uint32_t batch, uint32_t box_across,
                        uint32_t box_down) {
  const uint64_t element = size_of(dtype);
  // Strides that are never used still have to be valid ones.
  const uint64_t line =
      down > 1 ? uint64_t(stride) * element : round_up<uint64_t>(across * element, 16);
  const bool batched = batch > 1 && batch_stride != 0;
  return {.dtype = dtype,
          .size = {across, down, batched ? uint64_t(batch) : 1, 1},
          .stride_bytes = {0, line, batched ? uint64_t(batch_stride) * element : line, 0},
          .box = {box_across, box_down, 1, 1}};
}

/// The same matrix, not batched, as the ragged map of tma_box.h.
inline GemmMap ragged_map(const GemmMap& map) {
  const uint64_t stride = map.stride_bytes[1];
  return {.dtype = map.dtype,
          .rank = 4,
          .size = {map.size[0], kRaggedExtent, map.size[1] + 1, uint64_t(kRaggedExtent) + 1},
          .stride_bytes = {0, stride, stride, kRaggedWrap - stride},
          .box = {map.box[0], map.box[1], 1, 1}};
}

}  // namespace detail

inline GemmMap gemm_map_a(const GemmConfig& c, const GemmParams& p, uint32_t batch) {
  const bool by_k = c.a_major == Major::k;
  const uint32_t m = p.epilogue.m;
  const GemmMap map =
      detail::gemm_map(c.a, by_k ? p.k : m, by_k ? m : p.k, p.a.stride, p.a.batch_stride, batch,
                       atom_elements(c.a), box_rows(c.a_major, c.tile_m, c.tile_k, c.multicast_n));
  return loads_ragged(c.grouping, c.a_major) ? detail::ragged_map(map) : map;
}

inline GemmMap gemm_map_b(const GemmConfig& c, const GemmParams& p, uint32_t batch) {
  const bool by_k = c.b_major == Major::k;
  const uint32_t pieces = gated(c) ? 2 : 1;
  const uint32_t n = p.epilogue.n * pieces;
  const GemmMap map = detail::gemm_map(
      c.b, by_k ? p.k : n, by_k ? n : p.k, p.b.stride, p.b.batch_stride, batch, atom_elements(c.a),
      box_rows(c.b_major, c.tile_n, c.tile_k, c.multicast_m, pieces));
  return loads_ragged(c.grouping, c.b_major) ? detail::ragged_map(map) : map;
}

inline GemmMap gemm_map_d(const GemmConfig& c, const GemmParams& p, uint32_t batch) {
  const EpilogueParams& e = p.epilogue;
  const bool by_row = c.d_order == Order::row;
  const uint32_t columns = store_box_columns(c);
  const GemmMap map =
      detail::gemm_map(c.d, by_row ? e.n : e.m, by_row ? e.m : e.n, e.d_stride, e.d_batch_stride,
                       batch, by_row ? columns : 64, by_row ? 64 : columns);
  return stores_ragged(c.grouping, c.d_order) ? detail::ragged_map(map) : map;
}

}  // namespace cleave

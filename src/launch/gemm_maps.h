// The tensor maps of a TMA kernel's matrices: A, B and D.
//
// Sizes and strides are read from the kernel's parameters.
#pragma once

#include "cleave/config/gemm_params.h"
#include "cleave/config/loads.h"
#include "cleave/config/output.h"
#include "cleave/config/store_chunk.h"
#include "cleave/config/tma_box.h"
#include "launch/map_shapes.h"

namespace cleave {
namespace detail {

/// A matrix with a contiguous dimension of `across` elements and `down` lines `stride` elements
/// apart, batched unless its batch stride is 0.
inline TensorMapShape matrix_map(const char* name, DType dtype, uint64_t across, uint64_t down, int64_t stride,
                                 int64_t batch_stride, uint32_t batch, uint32_t box_across, uint32_t box_down) {
  const uint64_t element = size_of(dtype);
  // Strides that are never used still have to be valid ones.
  const uint64_t line = down > 1 ? uint64_t(stride) * element : round_up<uint64_t>(across * element, 16);
  const bool batched = batch > 1 && batch_stride != 0;
  return {.name = name,
          .dtype = dtype,
          .round_to_tf32 = dtype == DType::f32,
          .rank = 3,
          .size = {across, down, batched ? uint64_t(batch) : 1, 1},
          .stride_bytes = {0, line, batched ? uint64_t(batch_stride) * element : line, 0},
          .box = {box_across, box_down, 1, 1}};
}

/// The same matrix, not batched, as the ragged map of tma_box.h.
inline TensorMapShape ragged(TensorMapShape map) {
  const uint64_t lines = map.size[1], stride = map.stride_bytes[1];
  map.rank = 4;
  map.size = {map.size[0], kRaggedExtent, lines + 1, uint64_t(kRaggedExtent) + 1};
  map.stride_bytes = {0, stride, stride, kRaggedWrap - stride};
  map.box = {map.box[0], map.box[1], 1, 1};
  return map;
}

/// The same matrix, its gates and its ups each as one of its own: the third dimension, before the batch.
inline TensorMapShape in_two(TensorMapShape map, int64_t to_up) {
  map.rank = 4;
  map.size = {map.size[0], map.size[1], 2, map.size[2]};
  map.stride_bytes = {0, map.stride_bytes[1], uint64_t(to_up) * size_of(map.dtype), map.stride_bytes[2]};
  map.box = {map.box[0], map.box[1], 1, 1};
  return map;
}

}  // namespace detail

inline TensorMapShape map_of_a(const GemmConfig& c, const GemmParams& p, uint32_t batch) {
  const bool by_k = c.operands.a_major == Major::k;
  const uint32_t m = p.size.m;
  const TensorMapShape map = detail::matrix_map(
      "a", c.operands.a, by_k ? p.size.k : m, by_k ? m : p.size.k, p.a.stride, p.a.batch_stride, batch,
      atom_elements(c.operands.a), box_rows(c.operands.a_major, c.tile.m, c.tile.k, c.cluster.multicast_n));
  return loads_ragged(c.schedule.grouping, c.operands.a_major) ? detail::ragged(map) : map;
}

inline TensorMapShape map_of_b(const GemmConfig& c, const GemmParams& p, uint32_t batch) {
  const bool by_k = c.operands.b_major == Major::k;
  const uint32_t n = p.size.n, pieces = gated(c) ? 2 : 1;
  const int64_t line = by_k ? p.b.stride * p.gates.step : p.b.stride;
  const TensorMapShape map =
      detail::matrix_map("b", c.operands.b, by_k ? p.size.k : n, by_k ? n : p.size.k, line, p.b.batch_stride, batch,
                         box_width(c.operands.b_major, stage_columns(c), c.operands.b),
                         box_rows(c.operands.b_major, c.tile.n, c.tile.k, c.cluster.multicast_m, pieces));
  if (gated(c)) return detail::in_two(map, by_k ? p.b.stride * p.gates.up : p.gates.up);
  return loads_ragged(c.schedule.grouping, c.operands.b_major) ? detail::ragged(map) : map;
}

inline TensorMapShape map_of_d(const GemmConfig& c, const GemmParams& p, uint32_t batch) {
  const EpilogueParams& e = p.epilogue;
  const bool by_row = c.epilogue.order == Order::row;
  const uint32_t columns = store_box_columns(c);
  TensorMapShape map =
      detail::matrix_map("d", c.epilogue.d, by_row ? p.size.n : p.size.m, by_row ? p.size.m : p.size.n, e.d_stride,
                         e.d_batch_stride, batch, by_row ? columns : 64, by_row ? 64 : columns);
  map.round_to_tf32 = false;
  map.swizzled = swizzles_chunks(c);
  return stores_ragged(c.schedule.grouping, c.epilogue.order) ? detail::ragged(map) : map;
}

/// Calls `visit(map, data, shape)` for the maps of A, B and D, as far as the kernel has them: where
/// they are, what they show, and a function that says how.
template <class Visit>
void visit_matrix_maps(const GemmConfig& c, uint32_t batch, GemmParams& p, const Visit& visit) {
  if (has_map_a(c)) visit(p.map_a, p.a.data, [&] { return map_of_a(c, p, batch); });
  if (has_map_b(c)) visit(p.map_b, p.b.data, [&] { return map_of_b(c, p, batch); });
  if (has_map_d(c)) visit(p.map_d, p.epilogue.d, [&] { return map_of_d(c, p, batch); });
}

}  // namespace cleave

// GEMM of a packed weight with few columns, for any tensor-core GPU (sm_80 and later), as fast as the weight can be
// read from memory.
//
// Roles      all warps           read A, convert it, multiply (weights/stream.h). With warps.m x warps.k warps,
//                                those of one m have the same rows and split K; those of one k take turns adding up a
//                                tile's parts and slices, and running the epilogue
// Pipelines  registers           k blocks of A in flight, across the ends of tiles
//            full[2], empty[2]   a tile's parts in shared memory (weights/warp_parts.h)
// Resident   B's columns, in shared memory as long as tiles need them (weights/resident_columns.h)
#pragma once

#include "cleave/config/clusters.h"
#include "cleave/config/threads.h"
#include "cleave/epilogue/store_direct.h"
#include "cleave/epilogue/zero_rest.h"
#include "cleave/split_k/reduce.h"
#include "cleave/tile/cta_coord.h"
#include "cleave/weights/stream.h"

namespace cleave {

template <GemmConfig C>
CLEAVE_DEVICE void gemm_streamed(const Params<C>& p) {
  static_assert(has_weights(C) && !C.store.by_tma && cluster_size(C) == 1 && C.warps.n == 1);
  extern __shared__ __align__(kSharedAlignment) uint8_t shared[];
  const uint32_t smem = ptx::shared_address(shared);
  CtaCoord<C> cta;
  if (threadIdx.x == 0) WarpParts<C>(smem).init();
  cta.find_table(p, shared, cta_threads(C) / 32 - 1);
  __syncthreads();
  if constexpr (!C.operands.static_a) ptx::grid_dependency_wait();

  const uint32_t thread = threadIdx.x % math_threads(C);  // of those that finish
  const Fragment<C> fragment(thread);
  const auto fixup = reinterpret_cast<uint32_t*>(shared + smem_plan(C).fixup);
  WeightStream<C> stream(p, cta, smem);
  stream.run([&](const WorkTile& work, bool idle, Sums<C>& sums) {
    const Tile<C> tile = cta.tile(p, fragment, work);
    if (!reduce_split_k<C>(p, work, work.tile, tile, idle, sums, thread, fixup)) return;
    GlobalBroadcast<C> broadcast(p, tile);
    store_direct<C>(p, tile, broadcast, sums);
  });
  if constexpr (C.schedule.grouping == Grouping::n) {
    if (threadIdx.x < math_threads(C)) zero_rest<C>(p, cta.table, thread);
  }
}

}  // namespace cleave

// GEMM for any tensor-core GPU (sm_80 and later), and on Hopper for operands that TMA cannot address.
//
// Roles      every warp loads, multiplies and stores; no specialisation
// Pipeline   cp.async groups, one per k block, `stages` deep; one __syncthreads per k block
// Timeline   units in schedule order; split-K in clusters (sm_90): one unit
#pragma once

#include "cleave/conv_load/gather.h"
#include "cleave/epilogue/store_direct.h"
#include "cleave/epilogue/zero_rest.h"
#include "cleave/mainloop/mma_mainloop.h"
#include "cleave/split_k/cluster.h"
#include "cleave/split_k/reduce.h"
#include "cleave/tile/cta_coord.h"

namespace cleave {

namespace detail {
template <GemmConfig C>
struct CopierOf {
  using type = GatherCopier<C>;
};
template <GemmConfig C>
  requires(C.conv == Conv::none)
struct CopierOf<C> {
  using type = MatrixCopier<C>;
};
}  // namespace detail

template <GemmConfig C>
using OperandCopier = typename detail::CopierOf<C>::type;

template <GemmConfig C>
CLEAVE_DEVICE void gemm_portable(const Params<C>& p) {
  static_assert(C.multicast_m == 1 && C.multicast_n == 1 && !C.store_by_tma, "these need TMA");
  constexpr SmemPlan kPlan = smem_plan(C);
  extern __shared__ __align__(kSharedAlignment) uint8_t shared[];
  const uint32_t smem = ptx::shared_address(shared);
  const auto join_buffer = reinterpret_cast<const float4*>(shared + kPlan.join);
  const auto fixup = reinterpret_cast<uint32_t*>(shared + kPlan.fixup);
  Place<C> place;
  const Fragment<C> fragment(threadIdx.x);
  MmaMainloop<C, OperandCopier<C>> mainloop(p, smem, threadIdx.x);
  Sums<C> sums;

  if constexpr (C.cluster_k > 1) {  // every block's barrier is ready before another sends to it
    if (threadIdx.x == 0) {
      ClusterJoin<C>{smem, place.k_rank, place.share_rank}.init();
      ptx::fence_mbarrier_init();
    }
    __syncthreads();
    ptx::cluster_meet();
  }
  ptx::launch_dependents();
  ptx::grid_dependency_wait();
  place.find_table(p, shared);

  auto walk = place.walk(p.schedule);
  for (WorkUnit unit; walk.next(unit);) {
    const Tile<C> tile = place.tile(p, fragment, unit);
    mainloop.run(unit, tile, sums);
    if constexpr (C.cluster_k > 1) {
      const ClusterJoin<C> join{smem, place.k_rank, place.share_rank};
      join.meet();
      join.run(p, unit, unit.tile, tile, join_buffer, sums, threadIdx.x);
      break;
    }
    if (join<C>(p, unit, unit.tile, tile, walk.finished(), sums, threadIdx.x, fixup)) {
      GlobalLines<C> lines(p.epilogue, tile);
      store_direct<C>(p.epilogue, tile, lines, sums);
    }
  }
  if constexpr (C.grouping == Grouping::m || C.grouping == Grouping::n)
    zero_rest<C>(p, place.table, threadIdx.x);
}

}  // namespace cleave

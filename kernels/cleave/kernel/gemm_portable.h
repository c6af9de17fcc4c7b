// GEMM for any tensor-core GPU (sm_80 and later), and on Hopper for operands that TMA cannot address.
//
// Roles      every warp loads, multiplies and stores; no specialisation
// Pipeline   cp.async groups, one per k block, `stages` deep; one __syncthreads per k block
// Timeline   work tiles in schedule order; split-K in clusters (sm_90): one work tile
#pragma once

#include "cleave/config/threads.h"
#include "cleave/conv_load/gather.h"
#include "cleave/epilogue/store_direct.h"
#include "cleave/epilogue/zero_rest.h"
#include "cleave/mainloop/mma_mainloop.h"
#include "cleave/ptx/cluster.h"
#include "cleave/split_k/cluster.h"
#include "cleave/split_k/reduce.h"
#include "cleave/tile/cta_coord.h"

namespace cleave {

template <GemmConfig C>
using OperandCopier = Either<C.conv.kind == Conv::none, MatrixCopier<C>, GatherCopier<C>>;

template <GemmConfig C>
CLEAVE_DEVICE void gemm_portable(const Params<C>& p) {
  static_assert(C.cluster.multicast_m == 1 && C.cluster.multicast_n == 1 && !C.store.by_tma, "these need TMA");
  constexpr SmemPlan kPlan = smem_plan(C);
  extern __shared__ __align__(kSharedAlignment) uint8_t shared[];
  const uint32_t smem = ptx::shared_address(shared);
  const auto received = reinterpret_cast<const float4*>(shared + kPlan.cluster_reduce);
  const auto fixup = reinterpret_cast<uint32_t*>(shared + kPlan.fixup);
  CtaCoord<C> cta;
  const Fragment<C> fragment(threadIdx.x);
  MmaMainloop<C, OperandCopier<C>> mainloop(p, smem, threadIdx.x);
  Sums<C> sums;

  ptx::launch_dependents();
  cta.find_table(p, shared, cta_threads(C) / 32 - 1);
  if constexpr (C.cluster.k > 1) {  // every CTA's barrier is ready before another sends to it
    if (threadIdx.x == 0) {
      ClusterReduce<C>{smem, cta.k_rank, cta.share_rank}.init();
      ptx::fence_mbarrier_init();
    }
  }
  __syncthreads();
  if constexpr (C.cluster.k > 1) ptx::cluster_meet();
  ptx::grid_dependency_wait();

  auto scheduler = cta.scheduler(p);
  for (WorkTile work; scheduler.next(work);) {
    const Tile<C> tile = cta.tile(p, fragment, work);
    mainloop.run(work, tile, sums);
    if constexpr (C.cluster.k > 1) {
      const ClusterReduce<C> reduce{smem, cta.k_rank, cta.share_rank};
      reduce.meet();
      reduce.run(p, work, work.tile, tile, received, sums, threadIdx.x);
      break;
    }
    if (reduce_split_k<C>(p, work, work.tile, tile, scheduler.finished(), sums, threadIdx.x, fixup)) {
      GlobalBroadcast<C> broadcast(p, tile);
      if constexpr (C.epilogue.has_scale_out) {
        store_quantized<C>(p, tile, broadcast, sums);
      } else {
        store_direct<C>(p, tile, broadcast, sums);
      }
    }
  }
  if constexpr (C.schedule.grouping == Grouping::m || C.schedule.grouping == Grouping::n)
    zero_rest<C>(p, cta.table, threadIdx.x);
}

}  // namespace cleave

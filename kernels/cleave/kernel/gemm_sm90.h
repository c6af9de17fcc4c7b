// GEMM for Hopper: TMA + WGMMA, persistent, warp-specialised.
//
// Roles      consumers     warpgroups 0 .. C.warps.consumers - 1: multiply, add up slices, run the epilogue
//            producers     the last warpgroup, which gives most of its registers to the consumers:
//                          one lane loads operands by TMA, others packed weights and their scales, or those of added
//                          gradients (mainloop/scale_line_loader.h); two or three warps copy other scales, a narrow
//                          operand, or one whose rows a list names, and three ask for a tile's C (epilogue/staged_c.h);
//                          or, where few channels are gathered, all threads copy (conv_load/gather_loader.h)
// Pipelines  full[stage]   producers -> consumers: an arrival with the stage's bytes from the TMA lane, another with
//                          theirs from each lane beside it, and one from every thread that copies (64, 96 or 128)
//            empty[stage]  consumers -> producers: 4 arrivals, one a warp, from each warpgroup that reads the stage, in
//                          every CTA that shares loads by multicast
//            a tile's C    its full and empty are a pair of their own (epilogue/staged_c.h)
// Timeline   cooperative   all consumers share a tile; D's chunks drain under the next mainloop
//            ping-pong     each consumer has its own tile; one multiplies while the other runs its epilogue
//            added         sums for a float32 D that is C leave through shared memory, and L2 adds them
//                          (epilogue/store_added.h)
//            parallel      the slices that are still there reduce their tile (split_k/parallel.h)
//            over ranks    a tile is added up with those of other GPUs before its epilogue (split_k/across.h)
//            in clusters   one work tile per CTA, added up through the cluster's shared memory (split_k/cluster.h)
//            convolutions  the scheduler follows the classes in the parameters (conv/conv_classes.h)
//            static        an operand that no launch writes: its first loads start before the launch ahead is done
//            alone         with one warpgroup of consumers, a product's first loads leave before the CTA's threads
//                          meet (tma_producer.h)
//            grouped       one warp makes the barriers and reads the groups' bounds into a table (schedule/groups.h),
//                          which the schedulers of all roles then follow; its first loads leave before others have it.
//                          Meanwhile another fetches what is loaded first into L2 (mainloop/group_prefetch.h)
#pragma once

#include "cleave/config/clusters.h"
#include "cleave/config/dependent_launch.h"
#include "cleave/config/loads.h"
#include "cleave/config/output.h"
#include "cleave/config/threads.h"
#include "cleave/epilogue/staged_c.h"
#include "cleave/epilogue/store_added.h"
#include "cleave/epilogue/store_quantized.h"
#include "cleave/epilogue/store_staged.h"
#include "cleave/epilogue/zero_rest.h"
#include "cleave/kernel/sm90_producers.h"
#include "cleave/mainloop/group_prefetch.h"
#include "cleave/mainloop/wgmma_mainloop.h"
#include "cleave/ptx/cluster.h"
#include "cleave/ptx/sync.h"
#include "cleave/split_k/across.h"
#include "cleave/split_k/cluster.h"
#include "cleave/split_k/reduce.h"
#include "cleave/tile/cta_coord.h"
#include "cleave/weights/mainloop.h"

namespace cleave {

/// The compiler would rematerialise `smem` in every k block, by reading a special register; a shuffle makes it a value
/// that stays in a register. That pays most where sums are promoted. Kernels under register pressure go without.
template <GemmConfig C>
CLEAVE_DEVICE uint32_t keep_base(uint32_t smem) {
  constexpr bool kept = waits_late(C) || (C.scales.promote && C.schedule.grouping == Grouping::none && C.tile.n <= 160);
  return kept ? __shfl_sync(0xffffffffu, smem, 0) : smem;
}

template <GemmConfig C>
using Mainloop = Either<has_weights(C), WeightMainloop<C>, WgmmaMainloop<C>>;

/// Adds the CTA's further slices of the tile to `sums`, one after the other: the same bits as if other CTAs had
/// computed them.
template <GemmConfig C>
CLEAVE_DEVICE void add_slices_in_turn(const Params<C>& p, CtaScheduler<C>& scheduler, WorkTile& work,
                                      const Tile<C>& tile, Mainloop<C>& mainloop, Sums<C>& sums) {
  CLEAVE_NO_UNROLL
  for (uint32_t slice = 1; slice < p.schedule.slices_per_cluster; ++slice) {
    scheduler.next(work);
    Sums<C> added;
    mainloop.run(work, tile, added, [] {});
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < accumulators_per_thread(C); ++i) sums[i] += added[i];
  }
}

template <GemmConfig C>
CLEAVE_DEVICE void consume(const Params<C>& p, const CtaCoord<C>& cta, uint32_t smem, uint8_t* shared) {
  constexpr SmemPlan kPlan = smem_plan(C);
  const auto received = reinterpret_cast<const float4*>(shared + kPlan.cluster_reduce);
  const auto broadcast_buffer = reinterpret_cast<float*>(shared + kPlan.broadcast);
  const auto fixup = reinterpret_cast<uint32_t*>(shared + kPlan.fixup);
  // The shuffle tells the compiler that a warp agrees on it, so that descriptors go to uniform registers.
  const uint32_t warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const uint32_t thread = C.warps.pingpong ? threadIdx.x % 128 : threadIdx.x;
  const Fragment<C> fragment(thread);
  const uint32_t first_row = C.warps.pingpong ? 0 : warpgroup * Fragment<C>::kRows;
  Mainloop<C> mainloop(p, smem, first_row, cta.rank - cta.share_rank);
  Either<C.store.adds, AddedStore<C>, StagedStore<C>> staged_store(smem + kPlan.staging, warpgroup);
  [[maybe_unused]] PairedReach<C> paired(smem, shared, warpgroup, cta.rank ^ 1);
  [[maybe_unused]] StagedC<C> staged_c(p, smem);
  Sums<C> sums;

  auto scheduler = cta.scheduler(p);
  WorkTile work;
  bool more = scheduler.next(work);
  wait_late<C>();
  if (C.warps.pingpong && warpgroup == 1) {
    pass_turn(warpgroup);
    if (more) mainloop.state.advance(work.k_count);
    more = more && scheduler.next(work);
  }
  while (more) {
    const Tile<C> tile = cta.tile(p, fragment, work);
    TileBroadcast<C> broadcast(p, tile, broadcast_buffer + warpgroup * C.tile.n * column_broadcast_values(C));
    const SumAcross<C> across(p, tile);
    if constexpr (C.warps.pingpong) take_turn(warpgroup);
    mainloop.run(work, tile, sums, [&] {
      if constexpr (C.warps.pingpong) pass_turn(warpgroup);
    });
    if constexpr (C.schedule.in_turn) add_slices_in_turn<C>(p, scheduler, work, tile, mainloop, sums);
    if constexpr (C.cluster.k > 1) {
      const ClusterReduce<C> reduce{smem, cta.k_rank, cta.share_rank};
      reduce.meet();
      reduce.run(p, work, cta.linear_tile(work.tile), tile, received, sums, thread);
      break;
    }
    if (reduce_split_k<C>(p, work, cta.linear_tile(work.tile), tile, scheduler.finished(), sums, thread, fixup)) {
      across.run(p, sums);
      broadcast.share(warpgroup_barrier(warpgroup));
      if constexpr (stages_output(C)) {
        staged_store.store(p, tile, broadcast, sums);
      } else if constexpr (pairs_scales(C)) {
        store_quantized<C>(p, tile, broadcast, sums, paired);
      } else if constexpr (C.epilogue.has_scale_out) {
        store_quantized<C>(p, tile, broadcast, sums);
      } else if constexpr (C.conv.fuses_classes) {
        GlobalBroadcast<C> global(p, tile);
        store_direct<C>(p, tile, global, sums);
      } else if constexpr (stages_c(C)) {
        staged_c.store(tile, broadcast, sums);
      } else {
        store_direct<C>(p, tile, broadcast, sums);
      }
    }
    more = scheduler.next(work);
    if (C.warps.pingpong && more) {
      mainloop.state.advance(work.k_count);
      more = scheduler.next(work);
    }
  }
  if constexpr (C.schedule.grouping == Grouping::m || C.schedule.grouping == Grouping::n)
    zero_rest<C>(p, cta.table, threadIdx.x);
  if constexpr (stages_output(C)) staged_store.drain();
}

template <GemmConfig C>
CLEAVE_DEVICE void gemm_sm90(const Params<C>& p) {
  static_assert(C.cluster.multicast_m == 1 || C.cluster.multicast_n == 1, "a load is shared along one dimension only");
  static_assert(!C.warps.pingpong || (C.warps.consumers == 2 && C.schedule.split == SplitKMode::none),
                "ping-pong has two tiles, unsplit");
  static_assert(C.warps.consumers <= 4, "more have no barriers");
  static_assert(
      C.warps.consumers == 1 || 128 * (producer_registers(C) + C.warps.consumers * consumer_registers(C)) <= 65536,
      "more registers than there are");
  static_assert(Fragment<C>::kRows % 64 == 0, "a warpgroup multiplies 64 rows at a time");
  static_assert(C.cluster.k == 1 || C.schedule.split == SplitKMode::cluster || C.schedule.split == SplitKMode::parallel,
                "clusters add up slices in these modes only");
  constexpr SmemPlan kPlan = smem_plan(C);
  constexpr uint32_t kLoaders = C.conv.gather      ? 1 + copy_threads(C)
                                : copies_beside(C) ? 1 + has_weights(C) + threads_beside(C)
                                                   : 1;
  constexpr uint32_t kFirst = C.warps.consumers * 128;  // of the last warpgroup
  // Then nobody copies: lanes load, of TMA, a packed weight and scales.
  const bool whole_lines = has_weights(C)            ? C.warps.consumers > 1 && has_whole_lines<C>(p)
                           : may_load_scale_lines(C) ? has_whole_scale_lines(p)
                                                     : false;
  constexpr uint32_t kReaders = (C.warps.pingpong ? 1 : C.warps.consumers) * 4 * sharers(C);

  // The warp that asks TMA for groups makes all that a CTA's threads meet for: it goes on without waiting for them.
  constexpr bool kGrouped = C.schedule.group_capacity > 0;
  constexpr uint32_t kMaker = kGrouped ? kFirst : 0;

  extern __shared__ __align__(kSharedAlignment) uint8_t shared[];
  const uint32_t smem = keep_base<C>(ptx::shared_address(shared));
  CtaCoord<C> cta;

  if (threadIdx.x == 32) {
    if constexpr (has_map_a(C)) ptx::prefetch_tensor_map(&p.map_a);
    if constexpr (has_map_b(C)) ptx::prefetch_tensor_map(&p.map_b);
    if constexpr (has_map_d(C)) ptx::prefetch_tensor_map(&p.map_d);
  }
  if (threadIdx.x == kMaker) {
    for (uint32_t i = 0; i < C.tile.stages; ++i) {
      if constexpr (!loads_before_meeting(C))
        ptx::mbarrier_init(smem + kPlan.barriers + i * 8, whole_lines ? 2 + has_weights(C) : kLoaders);
      ptx::mbarrier_init(smem + kPlan.barriers + (C.tile.stages + i) * 8, kReaders);
    }
    if constexpr (C.cluster.k > 1) ClusterReduce<C>{smem, cta.k_rank, cta.share_rank}.init();
    if constexpr (pairs_scales(C)) PairedReach<C>::init(smem);
    if constexpr (stages_c(C)) StagedC<C>::init(smem);
    ptx::fence_mbarrier_init();
  }
  if constexpr (cluster_size(C) > 1) {  // CTAs meet while the table is built
    __syncwarp();
    ptx::cluster_arrive();
  }
  cta.find_table(p, shared, kMaker / 32);
  constexpr uint32_t kFirstBeside = kFirst + 128 - threads_beside(C);
  if constexpr (loads_before_meeting(C)) {
    constexpr auto kMeet = [] { __syncthreads(); };
    const uint32_t first = __shfl_sync(0xffffffffu, threadIdx.x, 0);  // of the warp
    if (first == kFirst) return produce_before_meeting<C>(p, cta, smem, kLoaders, kMeet);
    if constexpr (copies_beside(C)) {
      if (first >= kFirstBeside) return produce_beside<C>(p, cta, smem, kMeet);
    }
  }
  if constexpr (!kGrouped) {
    __syncthreads();
  } else if (threadIdx.x / 32 == kMaker / 32) {
    ptx::named_barrier_arrive(kMeeting, cta_threads(C));
  } else {
    if constexpr (prefetches_groups(C)) {
      if (threadIdx.x == 32) GroupPrefetch<C>(p).run();
    }
    ptx::named_barrier_sync(kMeeting, cta_threads(C));
  }
  if constexpr (cluster_size(C) > 1) ptx::cluster_wait();
  if constexpr (!waits_late(C)) ptx::grid_dependency_wait();

  if (threadIdx.x / 128 == C.warps.consumers) {
    if constexpr (C.warps.consumers > 1) ptx::registers_decrease<producer_registers(C)>();
    if constexpr (C.conv.gather) {
      produce_together<C>(p, cta, smem);
    } else if constexpr (!loads_before_meeting(C)) {
      if (asks_for_loads<C>(kFirst)) produce<C>(p, cta, smem);
    }
    if constexpr (has_weights(C)) {
      if (asks_for_loads<C>(kFirst + 32)) produce_by_bulk<WeightLoader<C>, C>(p, cta, smem);
      if (whole_lines && asks_for_loads<C>(kFirst + 64)) produce_by_bulk<WeightLineLoader<C>, C>(p, cta, smem);
    }
    if constexpr (may_load_scale_lines(C)) {
      if (whole_lines && asks_for_loads<C>(kFirst + 32)) produce_by_bulk<ScaleLineLoader<C>, C>(p, cta, smem);
    }
    if constexpr (copies_beside(C) && !loads_before_meeting(C)) {
      if (!whole_lines && threadIdx.x >= kFirstBeside) produce_beside<C>(p, cta, smem, [] {});
    }
    if constexpr (stages_c(C) && !copies_beside(C)) {
      if (threadIdx.x >= kFirstBeside) produce_c<C>(p, cta, smem);
    }
    if constexpr (C.cluster.k > 1 && kPlan.cluster_over_stages) {
      __syncwarp();
      ClusterReduce<C>::meet();
    }
  } else {
    if constexpr (C.warps.consumers > 1) ptx::registers_increase<consumer_registers(C)>();
    consume<C>(p, cta, smem, shared);
  }
  // A partner may still arrive on this CTA's barriers: all threads wait for it.
  if constexpr (sharers(C) > 1) {
    __syncwarp();
    ptx::cluster_meet();
  }
}

}  // namespace cleave

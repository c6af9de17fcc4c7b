// Adds up the slices of a tile inside a thread-block cluster, through distributed shared memory. The tile's parts
// (blocks of accumulators, or groups of blocks that share a scale of D) are divided among the ranks: every rank sends
// each rank its part, then sums what it received in rank order. The receiver's mbarrier counts the bytes, so that
// arrivals need no barrier across the cluster.
//
//   cluster split    the cluster holds all slices: the sums are final, the epilogue follows
//   parallel split   the cluster holds some of the slices: a rank writes its part of their sum to global memory, and
//                    the last one to do so adds the clusters' sums up in order. No cluster waits for another, so they
//                    need not all be resident.
//
// Each CTA has one work tile.
#pragma once

#include "cleave/config/clusters.h"
#include "cleave/config/output.h"
#include "cleave/config/smem_plan.h"
#include "cleave/config/threads.h"
#include "cleave/ptx/barrier.h"
#include "cleave/ptx/cluster.h"
#include "cleave/ptx/store_async.h"
#include "cleave/split_k/finish_parts.h"

namespace cleave {

template <GemmConfig C>
struct ClusterReduce {
  static constexpr SmemPlan kPlan = smem_plan(C);
  using Parts = TileParts<C>;
  static constexpr uint32_t kTogether = Parts::kBlocks;  // blocks of a part
  static constexpr uint32_t kParts = Parts::kCount;
  static constexpr uint32_t kMostParts = ceil_div(kParts, C.cluster.k);  // of one rank
  static constexpr uint32_t kMostBlocks = kMostParts * kTogether;
  static constexpr uint32_t kBlockBytes = math_threads(C) * 16;

  static_assert(!gated(C), "a gate and its up projection may be different ranks'");

  uint32_t smem, k_rank, share_rank;

  /// By one thread, before the CTAs of the cluster meet for the first time.
  CLEAVE_DEVICE void init() const {
    ptx::mbarrier_init(barrier(), 1);
    ptx::mbarrier_arrive_expect(barrier(), own_parts() * kTogether * C.cluster.k * kBlockBytes);
  }

  /// By all threads of the CTA, producers too, once it has multiplied: a larger buffer lies over the
  /// stages of every rank.
  CLEAVE_DEVICE static void meet() {
    if constexpr (kPlan.cluster_over_stages) ptx::cluster_meet();
  }

  /// By the math threads. `received`: the cluster's buffer; `number`: the tile's, for its counters and
  /// partials.
  CLEAVE_DEVICE void run(const GemmParams& p, const WorkTile& work, uint32_t number, const Tile<C>& tile,
                         const float4* received, const Sums<C>& sums, uint32_t thread) const {
    const uint32_t slot = number * p.schedule.clusters_per_tile + work.slice / C.cluster.k;
    GlobalBroadcast<C> broadcast(p, tile);
    EpilogueOp<C, GlobalBroadcast<C>> op(p, tile, broadcast);
    send(sums, thread);
    ptx::mbarrier_wait_cluster(barrier(), 0);
    for_own_parts([&](uint32_t i, uint32_t part) {
      PartStore<C, GlobalBroadcast<C>> store(p, op, part);
      CLEAVE_UNROLL
      for (uint32_t b = 0; b < kTogether; ++b) {
        const uint32_t block = Parts::first_block(part) + b;
        Sum<C> v[4] = {};
        sum_ranks(received, i * kTogether + b, thread, v);
        if constexpr (C.schedule.split == SplitKMode::cluster) {
          store.add(b, v, v, op.fetch(block));
        } else {
          __stcg(partial_tile_block<C>(p.partials, slot, block, thread), pack_block(v));
        }
      }
      if constexpr (C.schedule.split == SplitKMode::cluster) store.finish();
    });
    if constexpr (C.schedule.split == SplitKMode::parallel) {
      uint32_t* const counter = p.counters + number * C.cluster.k + k_rank;
      if (!arrive_last<C>(counter, p.schedule.clusters_per_tile, thread)) return;
      finish_parts<C>(p, op, number, k_rank, C.cluster.k, thread);
    }
    op.done();
  }

 private:
  CLEAVE_DEVICE uint32_t barrier() const { return smem + kPlan.cluster_barrier; }

  /// Parts k_rank, k_rank + cluster_k, ... are this rank's.
  CLEAVE_DEVICE uint32_t own_parts() const { return (kParts + C.cluster.k - 1 - k_rank) / C.cluster.k; }

  template <class Body>
  CLEAVE_DEVICE void for_own_parts(Body body) const {
    CLEAVE_UNROLL
    for (uint32_t i = 0; i < kMostParts; ++i) {
      if (i < own_parts()) body(i, i * C.cluster.k + k_rank);
    }
  }

  CLEAVE_DEVICE void send(const Sums<C>& sums, uint32_t thread) const {
    CLEAVE_UNROLL
    for (uint32_t block = 0; block < Fragment<C>::kBlocks; ++block) {
      const uint32_t part = block / kTogether, place = part / C.cluster.k * kTogether + block % kTogether;
      const uint32_t to = smem + kPlan.cluster_reduce + (k_rank * kMostBlocks + place) * kBlockBytes + thread * 16;
      ptx::store_async(to, barrier(), part % C.cluster.k * sharers(C) + share_rank, pack_block(sums + block * 4));
    }
  }

  CLEAVE_DEVICE static void sum_ranks(const float4* received, uint32_t i, uint32_t thread, Sum<C> (&v)[4]) {
    CLEAVE_UNROLL
    for (uint32_t from = 0; from < C.cluster.k; ++from)
      add_block(v, received[(from * kMostBlocks + i) * math_threads(C) + thread]);
  }
};

}  // namespace cleave

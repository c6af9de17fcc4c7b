// Sums of slices that the CTAs of a cluster hold in shared memory (sm_90 and later): each CTA adds up its share of the
// elements of all, in the slices' order. Clusters of the same block, if there are several, add theirs up in global
// memory, share by share, by who arrives last and in order.
#pragma once

#include "cleave/config/direct_work.h"
#include "cleave/config/gemm_params.h"
#include "cleave/ptx/cluster.h"
#include "cleave/ptx/shared.h"
#include "cleave/ptx/sync.h"

namespace cleave {

/// `Made` floats that all threads of a CTA have.
template <GemmConfig C, uint32_t Made>
class ClusterSums {
  static constexpr uint32_t kRanks = C.cluster.k, kVectors = Made / 4, kShare = ceil_div(kVectors, kRanks);
  static_assert(Made % 4 == 0);

 public:
  /// `clusters` of `block`, of which this is the `own`th.
  CLEAVE_DEVICE ClusterSums(const GemmParams& p, uint32_t shared, uint32_t block, uint32_t own, uint32_t clusters)
      : p_(p), shared_(shared), block_(block), own_(own), clusters_(clusters) {}

  /// By all threads of all CTAs, when each has its part of its CTA's sums there. Calls `store(element, sum)`, each
  /// element in one thread of one CTA.
  template <class Store>
  CLEAVE_DEVICE void add(Store store) const {
    ptx::cluster_sync();
    float4* const parts = reinterpret_cast<float4*>(p_.partials) + uint64_t(block_) * clusters_ * kVectors;
    for_each_vector([&](uint32_t at) {
      float4 sum = {};
      CLEAVE_UNROLL
      for (uint32_t rank = 0; rank < kRanks; ++rank) add_to(sum, ptx::load_cluster(shared_ + at * 16, rank));
      if (clusters_ == 1) {
        store_vector(store, at, sum);
      } else {
        __stcg(parts + uint64_t(own_) * kVectors + at, sum);
      }
    });
    ptx::cluster_arrive();
    if (clusters_ > 1 && arrives_last()) {
      for_each_vector([&](uint32_t at) {
        float4 sum = {};
        for (uint32_t i = 0; i < clusters_; ++i) add_to(sum, __ldcg(parts + uint64_t(i) * kVectors + at));
        store_vector(store, at, sum);
      });
    }
    ptx::cluster_wait();  // nobody reads this CTA's any more
  }

 private:
  template <class Visit>
  CLEAVE_DEVICE static void for_each_vector(Visit visit) {
    const uint32_t first = ptx::cluster_rank() * kShare, end = min_of(first + kShare, kVectors);
    for (uint32_t at = first + threadIdx.x; at < end; at += kDirectThreads) visit(at);
  }

  CLEAVE_DEVICE static void add_to(float4& sum, const float4& x) {
    sum = {sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w};
  }

  template <class Store>
  CLEAVE_DEVICE static void store_vector(Store store, uint32_t at, const float4& sum) {
    store(at * 4, sum.x), store(at * 4 + 1, sum.y), store(at * 4 + 2, sum.z), store(at * 4 + 3, sum.w);
  }

  /// True in all threads of the last of the CTAs that have the same share; the counter is then zero again.
  CLEAVE_DEVICE bool arrives_last() const {
    __syncthreads();
    uint32_t* const counter = p_.counters + block_ * kRanks + ptx::cluster_rank();
    bool last = false;
    if (threadIdx.x == 0) {
      last = ptx::add_acquire_release(counter, 1) == clusters_ - 1;
      if (last) *counter = 0;
    }
    return __syncthreads_or(last);
  }

  const GemmParams& p_;
  const uint32_t shared_, block_, own_, clusters_;
};

}  // namespace cleave

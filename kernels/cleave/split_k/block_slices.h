// Weight gradients of the direct kernels: which slice of K, of which block of channels, a CTA adds up, and how the
// slices of a block meet: in a cluster (cluster_sums.h), or in global memory (slice_sums.h).
#pragma once

#include "cleave/config/direct_work.h"
#include "cleave/config/gemm_params.h"
#include "cleave/conv/direct_conv.h"
#include "cleave/split_k/cluster_sums.h"
#include "cleave/split_k/slice_sums.h"

namespace cleave {

struct BlockSlice {
  uint32_t block, slice, slices;
};

/// This CTA's. The CTAs of a cluster have the same block.
template <GemmConfig C>
CLEAVE_DEVICE BlockSlice own_slice(const DirectShape& shape) {
  uint32_t cluster = 0, block = 0;
  shape.blocks.divmod(blockIdx.x / C.cluster.k, cluster, block);
  return {block, cluster * C.cluster.k + blockIdx.x % C.cluster.k, gridDim.x / shape.blocks.divisor};
}

/// The first of a block's tiles that the CTA has, where its slices take turns: the next is gridDim.x tiles further on.
template <GemmConfig C>
CLEAVE_DEVICE uint32_t first_tile(const DirectShape& shape) {
  if constexpr (C.cluster.k == 1) return blockIdx.x;
  const BlockSlice own = own_slice<C>(shape);
  return own.slice * shape.blocks.divisor + own.block;
}

/// By all threads, when each has its part of the CTA's `Made` sums in `shared`. Calls `store(element, sum)` with what
/// all slices add up to, each element in one thread of one CTA.
template <GemmConfig C, uint32_t Made, class Store>
CLEAVE_DEVICE void add_slices(const Params<C>& p, float* shared, Store store) {
  if constexpr (C.cluster.k > 1) {
    const BlockSlice own = own_slice<C>(p.shape);
    const uint32_t cluster = own.slice / C.cluster.k, clusters = own.slices / C.cluster.k;
    ClusterSums<C, Made>(p, ptx::shared_address(shared), own.block, cluster, clusters).add(store);
  } else {
    if constexpr (C.schedule.split == SplitKMode::parallel) {
      const BlockSlice own = own_slice<C>(p.shape);
      if (!SliceSums<C, Made>(p, shared).add(own.block, own.slice, own.slices)) return;
    }
    for (uint32_t i = threadIdx.x; i < Made; i += kDirectThreads) store(i, shared[i]);
  }
}

}  // namespace cleave

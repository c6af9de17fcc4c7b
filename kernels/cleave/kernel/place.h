// Which worker, which part of a cluster, and so which tile and slice, a block is.
#pragma once

#include "cleave/kernel/gemm_config.h"
#include "cleave/ptx/barrier.h"
#include "cleave/schedule/schedule.h"

namespace cleave {

/// A block's place in the launch.
template <GemmConfig C>
struct Place {
  uint32_t rank = cluster_size(C) > 1 ? ptx::cluster_rank() : 0;
  uint32_t share_rank = rank % sharers(C);  // among the blocks that share loads
  uint32_t k_rank = rank / sharers(C);      // which of the cluster's slices this block has
  uint32_t worker = blockIdx.x / cluster_size(C);
  uint32_t workers = gridDim.x / cluster_size(C);

  CLEAVE_DEVICE uint32_t tile_m(uint32_t m) const {
    return m * C.multicast_m + (C.multicast_m > 1 ? share_rank : 0);
  }
  CLEAVE_DEVICE uint32_t tile_n(uint32_t n) const {
    return n * C.multicast_n + (C.multicast_n > 1 ? share_rank : 0);
  }
  CLEAVE_DEVICE uint32_t tile(uint32_t tile) const { return tile * sharers(C) + share_rank; }
  CLEAVE_DEVICE Walk<C.split> walk(const Schedule& s) const {
    return Walk<C.split>(s, worker, workers, k_rank);
  }
};

}  // namespace cleave

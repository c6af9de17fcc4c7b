// Finds every slot's row, after `count`, or all by itself where one cluster has all slots: the slots of an expert keep
// their order, so the result is the same in every run.
//
// Roles      a CTA has a chunk of the slots, and each of its warps a part of the chunk
// Timeline   each warp counts its part; by itself, a cluster's CTAs read each other's counts from shared memory;
//            the counts become the first row of each warp and bin, those of earlier chunks and warps below it;
//            each warp walks its part again and deals rows
#pragma once

#include "cleave/core/sum_up_to_thread.h"
#include "cleave/moe/add_chunks.h"
#include "cleave/moe/moe_config.h"
#include "cleave/moe/moe_params.h"
#include "cleave/ptx/cluster.h"
#include "cleave/ptx/sync.h"

namespace cleave {

/// How many of each bin the CTA has, whose `warps` warps have counted `rows`. All its threads take part.
CLEAVE_DEVICE void add_warps(uint32_t bins, const uint32_t* rows, uint32_t warps, uint32_t* sums) {
  for (uint32_t bin = threadIdx.x; bin < bins; bin += blockDim.x) {
    uint32_t count = 0;
    for (uint32_t w = 0; w < warps; ++w) count += rows[w * bins + bin];
    sums[bin] = count;
  }
}

/// From each CTA's `own` counts those of the cluster, and of the CTAs before this one. A CTA must not end before
/// ptx::cluster_wait(): others may still read what is its own.
template <uint32_t Ctas>
CLEAVE_DEVICE void add_ctas(uint32_t bins, const uint32_t* own, uint32_t* all, uint32_t* before) {
  ptx::cluster_sync();
  for (uint32_t bin = threadIdx.x; bin < bins; bin += blockDim.x) {
    uint32_t counts[Ctas], sum = 0;
    CLEAVE_UNROLL
    for (uint32_t cta = 0; cta < Ctas; ++cta) counts[cta] = ptx::load_shared_of(own + bin, cta);
    CLEAVE_UNROLL
    for (uint32_t cta = 0; cta < Ctas; ++cta) {
      if (cta == blockIdx.x) before[bin] = sum;
      sum += counts[cta];
    }
    all[bin] = sum;
  }
  ptx::cluster_arrive();
}

/// Where the rows of each bin begin, from how many there are of it, and, in memory, where those of the experts end.
CLEAVE_DEVICE void find_first_rows(const MoeParams& p, uint32_t* first) {
  const uint32_t bins = p.bins.divisor, lane = threadIdx.x % 32;
  if (threadIdx.x >= 32) return;
  uint32_t before = 0;
  for (uint32_t begin = 0; begin < bins; begin += 32) {
    const uint32_t bin = begin + lane, count = bin < bins ? first[bin] : 0;
    const uint32_t end = before + sum_up_to_lane(count);
    if (bin < bins) first[bin] = end - count;
    if (bin < p.experts && blockIdx.x == 0) p.offsets[bin] = int32_t(end);
    before = __shfl_sync(0xffffffffu, end, 31);
  }
}

template <MoeConfig C>
CLEAVE_DEVICE void rank(const MoeParams& p) {
  extern __shared__ uint32_t shared[];
  constexpr uint32_t kAll = 0xffffffffu;
  const uint32_t bins = p.bins.divisor, thread = threadIdx.x, threads = blockDim.x;
  const uint32_t warp = thread / 32, lane = thread % 32, warps = threads / 32;
  uint32_t* const earlier = shared;  // rows of earlier chunks, or all before a bin
  uint32_t* const of_cta = shared + (1 + warps) * bins;
  uint32_t* const of_ctas_before = of_cta + bins;
  uint32_t* const rows = shared + (1 + warp) * bins;  // this warp's next row of each bin
  ptx::launch_dependents();
  for (uint32_t i = thread; i < bins * (1 + warps); i += threads) shared[i] = 0;
  __syncthreads();
  ptx::grid_dependency_wait();

  const uint32_t chunk_begin = blockIdx.x * p.chunk;
  const uint32_t chunk_end = min_of(chunk_begin + p.chunk, p.slots);
  const uint32_t part = round_up(ceil_div(p.chunk, warps), 32u);
  const uint32_t begin = chunk_begin + warp * part, end = min_of(begin + part, chunk_end);
  for_each_loaded(
      begin + lane, end, 32, [&](uint32_t slot) { return bin_of<C.wide_ids>(p, slot); },
      [&](uint32_t, uint32_t bin) { atomicAdd(&rows[bin], 1u); });
  if constexpr (C.counting > 0) {
    __syncthreads();
    add_warps(bins, shared + bins, warps, C.counting == 1 ? earlier : of_cta);
    if constexpr (C.counting > 1) add_ctas<C.counting>(bins, of_cta, earlier, of_ctas_before);
    __syncthreads();
    find_first_rows(p, earlier);
  } else {
    add_chunks(p, blockIdx.x, threads, earlier);
  }
  __syncthreads();

  for (uint32_t bin = thread; bin < bins; bin += threads) {
    uint32_t row = earlier[bin];
    if (C.counting > 1) row += of_ctas_before[bin];
    if (C.counting == 0 && bin > 0) row += uint32_t(p.offsets[bin - 1]);
    for (uint32_t w = 1; w <= warps; ++w) {
      const uint32_t count = shared[w * bins + bin];
      shared[w * bins + bin] = row;
      row += count;
    }
  }
  __syncthreads();

  for (uint32_t first = begin; first < end; first += 32) {
    const uint32_t slot = first + lane;
    const bool exists = slot < end;
    const uint32_t bin = exists ? bin_of<C.wide_ids>(p, slot) : kAll;
    const uint32_t equals = __match_any_sync(kAll, bin);
    const uint32_t before = __popc(equals & ((1u << lane) - 1));
    const uint32_t row = exists ? rows[bin] + before : 0;
    __syncwarp();
    if (exists && before == 0) rows[bin] += __popc(equals);
    __syncwarp();
    if (!exists) continue;
    const bool dropped = bin == p.experts;
    // Were the ids written while this kernel reads them twice, a row may be none.
    if (row < p.slots) p.indices[row] = signed_index(slot, dropped);
    if (p.positions != nullptr) p.positions[slot] = signed_index(row, dropped);
  }
  if constexpr (C.counting > 1) ptx::cluster_wait();
}

}  // namespace cleave

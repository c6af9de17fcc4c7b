// Finds every slot's row, and where each expert's rows end: the slots of an expert keep their order, so the result is
// the same in every run.
//
// Roles      a CTA has a chunk of the slots, or all of them, and some of its warps a part of the chunk each
// Timeline   each warp counts its part; where there are several chunks, their counts go to memory, and come back once
//            those of all are there (chunk_claims.h: a CTA counts other chunks first, if their CTAs do not run yet);
//            the counts become the first row of each warp and bin; each warp walks its part again and deals rows
#pragma once

#include "cleave/core/sum_up_to_thread.h"
#include "cleave/moe/add_chunks.h"
#include "cleave/moe/chunk_claims.h"
#include "cleave/moe/moe_config.h"
#include "cleave/moe/moe_params.h"
#include "cleave/ptx/sync.h"

namespace cleave {

/// What a warp has of the slots; warps beyond p.parts have nothing.
struct RankPart {
  uint32_t begin, end;

  CLEAVE_DEVICE RankPart(const MoeParams& p, uint32_t chunk) {
    const uint32_t chunk_begin = chunk * p.chunk, chunk_end = min_of(chunk_begin + p.chunk, p.slots);
    begin = chunk_begin + threadIdx.x / 32 * p.part;
    end = min_of(begin + p.part, chunk_end);
  }
};

/// From each part's counts of each bin those of the chunk.
CLEAVE_DEVICE void add_parts(const MoeParams& p, const uint32_t* rows, uint32_t* sums) {
  const uint32_t bins = p.bins.divisor;
  for (uint32_t bin = threadIdx.x; bin < bins; bin += blockDim.x) {
    uint32_t count = 0;
    for (uint32_t part = 0; part < p.parts; ++part) count += rows[part * bins + bin];
    sums[bin] = count;
  }
}

/// From the parts' counts the first row of each part and bin. `all` has how many there are of each bin, and then where
/// the bin's rows begin; `before` how many of them are in earlier chunks.
CLEAVE_DEVICE void find_first_rows(const MoeParams& p, bool writes_offsets, uint32_t* all, const uint32_t* before,
                                   uint32_t* rows, uint32_t (&of_warps)[32]) {
  const uint32_t bins = p.bins.divisor, thread = threadIdx.x;
  const uint32_t end = sum_up_to_thread(thread < p.experts ? all[thread] : 0, of_warps);
  if (thread < p.experts) {
    all[thread + 1] = end;
    if (writes_offsets) p.offsets[thread] = int32_t(end);
  }
  if (thread == 0) all[0] = 0;
  __syncthreads();
  for (uint32_t bin = thread; bin < bins; bin += blockDim.x) {
    uint32_t row = all[bin] + before[bin];
    for (uint32_t part = 0; part < p.parts; ++part) {
      const uint32_t count = rows[part * bins + bin];
      rows[part * bins + bin] = row;
      row += count;
    }
  }
}

/// `rows`: the warp's next row of each bin.
template <MoeConfig C>
CLEAVE_DEVICE void deal_rows(const MoeParams& p, const RankPart& part, uint32_t* rows) {
  constexpr uint32_t kAll = 0xffffffffu;
  const uint32_t lane = threadIdx.x % 32;
  for (uint32_t first = part.begin; first < part.end; first += 32) {
    const uint32_t slot = first + lane;
    const bool exists = slot < part.end;
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
}

template <MoeConfig C, class Memory = ChunkMemory>
CLEAVE_DEVICE void rank(const MoeParams& p) {
  extern __shared__ uint32_t shared[];
  RankScratch& scratch = *reinterpret_cast<RankScratch*>(shared);
  const uint32_t bins = p.bins.divisor, thread = threadIdx.x, threads = blockDim.x, chunks = gridDim.x;
  uint32_t* const all = shared + sizeof(RankScratch) / sizeof(uint32_t);
  uint32_t* const before = all + bins;
  uint32_t* const rows = before + bins;
  uint32_t* const rows_of_warp = rows + thread / 32 * bins;
  const auto clear = [&] {
    for (uint32_t i = thread; i < rank_counters(bins, p.parts); i += threads) all[i] = 0;
    __syncthreads();
  };
  ptx::launch_dependents();
  clear();
  ptx::grid_dependency_wait();

  const ChunkClaims<Memory> claims{{p.counters}, chunks};
  bool counts = chunks > 1;  // for others, too
  uint32_t chunk = blockIdx.x;
  uint64_t own = uint64_t(1) << chunk;
  // What others had claimed. The thread counts before it looks at this, which is under way meanwhile.
  uint64_t claimed = counts && thread == 0 ? claims.claim(chunk) : 0;
  while (true) {
    const RankPart part(p, chunk);
    for_each_loaded(
        part.begin + thread % 32, part.end, 32, [&](uint32_t slot) { return bin_of<C.wide_ids>(p, slot); },
        [&](uint32_t, uint32_t bin) { atomicAdd(&rows_of_warp[bin], 1u); });
    if (thread == 0) scratch.next = claims.is_free(claimed, chunk) ? chunk : chunks;
    __syncthreads();
    if (scratch.next == chunks) {
      if (thread == 0) claims.depart();
      return;
    }
    claimed = 0;
    const bool alone = chunks == 1;
    if (counts || alone) add_parts(p, rows, alone ? all : p.counts + chunk * bins);
    if (counts) {
      __syncthreads();
      if (thread == 0) scratch.next = claims.arrive();
      __syncthreads();
      if (scratch.next < chunks) {
        chunk = scratch.next;
        own |= uint64_t(1) << chunk;
        clear();
        continue;
      }
    }
    if (!alone) add_chunks(p, chunks, chunk, all, before);
    __syncthreads();
    find_first_rows(p, chunk == 0, all, before, rows, scratch.of_warps);
    __syncthreads();
    // The last warp has the fewest slots, perhaps none, and so the time to wait for this.
    if (counts && thread == threads - 1) claims.depart();
    counts = false;
    deal_rows<C>(p, part, rows_of_warp);
    own &= ~(uint64_t(1) << chunk);
    if (own == 0) return;
    for (chunk = 0; (own >> chunk & 1) == 0;) ++chunk;
    __syncthreads();
    clear();
  }
}

}  // namespace cleave

// The one argument of every kernel of moe/, filled by the host for each launch and passed as a
// __grid_constant__.
//
// A slot is one of a token's top_k choices; slots count token by token. Every slot has a row, and
// every row a slot: those of expert 0 first, in the order of their slots, then those of expert 1 and
// so on, and last those whose token is dropped, since its id names no expert.
//
//   indices[row] = slot      positions[slot] = row      dropped: ~slot, ~row
#pragma once

#include "cleave/core/fast_divmod.h"
#include "cleave/core/math.h"

namespace cleave {

/// What CTAs that count together say of their chunks; zero between launches.
struct ChunkCounters {
  uint64_t claims;   // rank: a bit for each chunk that is taken
  uint32_t arrived;  // chunks that are counted
};

struct MoeParams {
  uint32_t slots = 0;  // below 2^31
  uint32_t top_k = 1;
  uint32_t experts = 0;
  const void* ids = nullptr;     // [slots]
  int32_t* offsets = nullptr;    // [experts]: where each expert's rows end
  int32_t* indices = nullptr;    // [slots]
  int32_t* positions = nullptr;  // [slots], or null where nobody asks for them

  // count and rank: each CTA has `chunk` slots, and of these, in rank, each of `parts` warps has `part`
  uint32_t chunk = 0;
  uint32_t part = 0;
  uint32_t parts = 0;
  FastDivmod bins;             // experts + 1: the last counts the dropped
  uint32_t* counts = nullptr;  // [chunks, bins]; unused where there is one chunk, as the counters are
  ChunkCounters* counters = nullptr;

  // Rows of tokens and sorted ones; strides count bytes.
  uint32_t row_bytes = 0;
  void* tokens = nullptr;
  int64_t token_stride = 0;
  void* rows = nullptr;
  int64_t row_stride = 0;
  void* rows_grad = nullptr;
  int64_t row_grad_stride = 0;
  const void* weights = nullptr;  // [slots]
  float* row_scales = nullptr;    // [slots, scales]
  FastDivmod scales;              // of a row
  void* weights_grad = nullptr;
};

/// An index and a flag in one int32: ~index where dropped.
struct Signed {
  uint32_t index;
  bool dropped;

  CLEAVE_HD explicit Signed(int32_t bits) : index(uint32_t(bits < 0 ? ~bits : bits)), dropped(bits < 0) {}
};

CLEAVE_HD int32_t signed_index(uint32_t index, bool dropped) {
  return dropped ? ~int32_t(index) : int32_t(index);
}

/// The expert that a slot goes to, or `experts` where its id names none.
template <bool Wide>
CLEAVE_HD uint32_t bin_of(const MoeParams& p, uint32_t slot) {
  const int64_t id = Wide ? static_cast<const int64_t*>(p.ids)[slot] : static_cast<const int32_t*>(p.ids)[slot];
  return id >= 0 && id < int64_t(p.experts) ? uint32_t(id) : p.experts;
}

/// What `rank` has in shared memory ahead of its counters.
struct RankScratch {
  uint32_t next;  // chunk to count; the number of chunks if there is none
  uint32_t of_warps[32];
};

/// Counters of `rank`: of each bin, for all slots, those of earlier chunks, and each part.
CLEAVE_HD constexpr uint32_t rank_counters(uint32_t bins, uint32_t parts) {
  return bins * (2 + parts);
}
CLEAVE_HD constexpr uint32_t rank_shared_bytes(uint32_t bins, uint32_t parts) {
  return uint32_t(sizeof(RankScratch)) + rank_counters(bins, parts) * uint32_t(sizeof(uint32_t));
}

}  // namespace cleave

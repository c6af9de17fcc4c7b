// Who counts which chunk, where CTAs wait for all chunks' counts. Nobody promises that all CTAs of a launch run at
// once: so a CTA that waits takes whatever chunk no CTA has taken, and then waits for chunks of running CTAs alone.
//
// Counters   claims: a bit for each chunk that a CTA has taken. arrived: how many are counted, and, from kDeparture on,
//            how many CTAs use the counters no more; the last of these clears both, for the next launch
#pragma once

#include "cleave/core/macros.h"
#include "cleave/moe/moe_config.h"
#include "cleave/moe/moe_params.h"
#include "cleave/ptx/sync.h"

namespace cleave {

inline constexpr uint32_t kDeparture = 1u << 16;
static_assert(kMostChunks <= 64, "claims are bits of one word");

/// How the counters are used. Tests have another way.
struct ChunkMemory {
  ChunkCounters* counters;

  CLEAVE_DEVICE uint64_t claim(uint64_t bit) const { return ptx::or_relaxed(&counters->claims, bit); }
  CLEAVE_DEVICE uint64_t claims() const { return ptx::load_relaxed(&counters->claims); }
  CLEAVE_DEVICE uint32_t arrive(uint32_t value) const { return ptx::add_acquire_release(&counters->arrived, value); }
  CLEAVE_DEVICE uint32_t arrived() const { return ptx::load_acquire(&counters->arrived); }
  CLEAVE_DEVICE void clear() const { *counters = {}; }
};

/// For one thread of a CTA at a time.
template <class Memory>
struct ChunkClaims {
  Memory memory;
  uint32_t chunks;  // as many as CTAs

  /// Claims `chunk`: the claims before, which say whether it is this CTA's now.
  CLEAVE_DEVICE uint64_t claim(uint32_t chunk) const { return memory.claim(uint64_t(1) << chunk); }
  CLEAVE_DEVICE static bool is_free(uint64_t claims, uint32_t chunk) { return (claims >> chunk & 1) == 0; }

  /// Another of this CTA's chunks is counted. The next one, which is this CTA's; `chunks` once all are counted, and
  /// then their counts are visible.
  CLEAVE_DEVICE uint32_t arrive() const {
    const uint64_t all = ~uint64_t(0) >> (64 - chunks);
    uint32_t arrived = memory.arrive(1) + 1;
    while (arrived % kDeparture != chunks) {
      const uint64_t claims = memory.claims();
      arrived = memory.arrived();
      if (claims == all) continue;
      uint32_t chunk = 0;
      while (!is_free(claims, chunk)) ++chunk;
      if (is_free(claim(chunk), chunk)) return chunk;
    }
    return chunks;
  }

  /// The CTA's last use.
  CLEAVE_DEVICE void depart() const {
    if (memory.arrive(kDeparture) / kDeparture == chunks - 1) memory.clear();
  }
};

}  // namespace cleave
